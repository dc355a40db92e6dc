"""All entities, with their tables, columns and ages."""

from __future__ import annotations

import json

from topology.inspector.schema.clients import CONNECTION, PUBLISHER, SUBSCRIPTION, WAIT
from topology.inspector.schema.deliveries import DELIVERY
from topology.inspector.schema.model import Aging, Column, EntityType, Type, columns_in, with_parts
from topology.inspector.schema.network import LINK, LOG, ROUTER, TOPIC
from topology.inspector.schema.own import CHANNEL, EVENT, NEIGHBOUR, OVERVIEW
from topology.inspector.schema.states import REASONS, WORDS
from topology.inspector.schema.stored import JOURNAL, QUEUE

MANAGED: dict[str, EntityType] = {
    each.name: each for each in (ROUTER, LINK, TOPIC, SUBSCRIPTION, PUBLISHER, CONNECTION, LOG, QUEUE, JOURNAL)
}
"""Entities that management offers by type and name. The router adds its settings."""
STORED: tuple[str, ...] = tuple(each.table for each in MANAGED.values() if each.is_stored and each.table is not None)
"""Tables of an edge's store, not of the router."""
SHOWN: dict[str, EntityType] = {each.name: each for each in (OVERVIEW, WAIT, CHANNEL, NEIGHBOUR, EVENT, DELIVERY)}
"""Entities that are shown and not managed."""


def entity_of(table: str) -> EntityType:
    """The entity of a table of the inspector."""
    return next(each for each in (*MANAGED.values(), *SHOWN.values()) if each.table == table)


def columns_of(table: str) -> list[tuple[str, Column]]:
    """The columns of a table, by attribute."""
    return list(columns_in(entity_of(table).attributes))


def page_module() -> str:
    """The page's module `schema.js`: the columns it shows of each table, and its words for states."""
    tables = {
        entity.table: [
            {
                "name": each.name,
                "label": each.column.page_label,
                "type": each.type.value,
                "unit": None if each.unit is None else each.unit.value,
                # A number that is not known stays visible, as a dash: another router knows it.
                "optional": each.column.is_optional and each.type is Type.TEXT,
            }
            for each in entity.attributes
            if each.column is not None and each.column.page_label
        ]
        for entity in (*MANAGED.values(), *SHOWN.values())
        if entity.table is not None
    }
    words = {value: word._asdict() for value, word in WORDS.items()}
    parts = {"TABLES": tables, "WORDS": words, "REASONS": dict(REASONS)}
    exports = "".join(f"export const {name} = {json.dumps(part, indent=1)};\n" for name, part in parts.items())
    return f"// Written by the router from its schema.\n{exports}"


def names_that(aging: Aging) -> frozenset[str]:
    """Names of attributes that grow or shrink with time."""
    return frozenset(
        each.name
        for entity in (*MANAGED.values(), *SHOWN.values())
        for each in with_parts(entity.attributes)
        if each.aging is aging
    )
