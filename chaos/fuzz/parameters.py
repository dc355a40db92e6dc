"""Target `parameters`: query strings, requests of watchers and arguments of operations, as HTTP hands them over."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from chaos.fuzz.mutations import TEXTS, json_value, mutate_text
from chaos.fuzz.target import Finding, InputTarget
from delivery_records.model.topics import TopicError, check_pattern
from router.operator.arguments import ManagementError, check
from router.operator.schema import TYPES
from topology.inspector.paging_core import page_of
from topology.inspector.parameters_core import (
    DELIVERY_PARAMETERS,
    EVENT_PARAMETERS,
    PAGE_PARAMETERS,
    WAIT_PARAMETERS,
    after_of,
    check_names,
    flag,
    limit_of,
    page_request,
    pairs_of,
    tag_of,
    watch_request,
    wish_id,
)
from topology.inspector.rows_core import Filter, InputError
from topology.inspector.schema.model import Attribute

Request: TypeAlias = tuple[str, Any]
EACH = 12
QUERY: Mapping[str, tuple[str, ...]] = {
    "limit": ("1", "500"),
    "cursor": ("abc", "WyIiLCIiXQ"),
    "topic": ("orders", "fuzz/#"),
    "router": ("r1",),
    "q": ("a",),
    "min_s": ("1", "0.5"),
    "network": ("true", "false"),
    "publisher": ("c/p",),
    "of": ("00.", "00." + "f" * 40),
    "after": ("7",),
}
ATTRIBUTES: tuple[tuple[Attribute, ...], ...] = tuple(
    attributes
    for entity in TYPES.values()
    for attributes in (entity.attributes, *(each.arguments for each in entity.operations))
    if attributes
)


def _inputs(rng: random.Random) -> Iterator[Request]:
    kind = rng.choice(("query", "query", "tag", "watch", "arguments", "arguments"))
    for _ in range(EACH):
        if kind == "query":
            names = rng.sample(sorted(QUERY), rng.choice((1, 1, 2, 3)))
            yield kind, {_text(rng, name, 0.02): _text(rng, rng.choice(QUERY[name]), 0.6) for name in names}
        elif kind == "tag":
            yield kind, _text(rng, "00ff" * rng.randrange(10), 0.8)
        elif kind == "watch":
            tables = [
                rng.choice(("overview", "subscriptions", "waits", json_value(rng))) for _ in range(rng.randrange(4))
            ]
            wish = {"id": "1", "tables": tables, "topic": None, "router": None}
            wish[rng.choice((*wish, _text(rng, "id", 1)))] = json_value(rng)
            yield kind, wish if rng.random() < 0.9 else json_value(rng)
        else:
            which = rng.randrange(len(ATTRIBUTES))
            names = [each.name for each in rng.sample(ATTRIBUTES[which], min(len(ATTRIBUTES[which]), rng.randrange(4)))]
            yield kind, (which, {_text(rng, name, 0.1): json_value(rng) for name in names})


def _text(rng: random.Random, text: str, odds: float) -> str:
    if rng.random() >= odds:
        return text
    return mutate_text(rng, text) if rng.random() < 0.5 else rng.choice(TEXTS)


def take(request: Request) -> bool:
    """Check a request; whether it is one that can be answered.

    Raises:
        Finding: a refusal does not say what to do, or cannot be sent.
    """
    kind, given = request
    try:
        if kind == "query":
            _take_query(given)
        elif kind == "tag":
            tag_of(given)
        elif kind == "watch":
            wish_id(given)
            watch_request(given)
        else:
            check(ATTRIBUTES[given[0]], given[1], "argument")
    except (InputError, ManagementError) as refused:
        if not str(refused) or not refused.fix:
            raise Finding(f"the refusal says too little: {refused!r}") from None
        json.dumps({"error": str(refused), "fix": refused.fix}).encode()
        return False
    except TopicError:
        return False
    return True


def _take_query(query: Mapping[str, str]) -> None:
    for known in (PAGE_PARAMETERS, WAIT_PARAMETERS, DELIVERY_PARAMETERS, EVENT_PARAMETERS):
        if set(query) <= known:
            break
    if "of" in query:
        pairs_of(query)
        return
    check_names(query, known)
    limit_of(query)
    after_of(query)
    flag(query, "network")
    if known in (PAGE_PARAMETERS, WAIT_PARAMETERS):
        asked = page_request(query, known)
        if asked.wanted.topic:
            check_pattern(asked.wanted.topic)
        page_of([], asked.wanted, asked.cursor, asked.limit)
        assert isinstance(asked.wanted, Filter)


PARAMETERS = InputTarget(
    "parameters",
    "query strings, tags, requests of watchers and arguments of operations, mutated, into what checks them for HTTP "
    "and `$management`; a request, or an error that says what to do",
    (
        "topology.inspector.parameters_core",
        "topology.inspector.paging_core",
        "topology.inspector.schema",
        "router.operator.arguments",
        "router.operator.schema",
        "delivery_records.model.topics",
    ),
    _inputs,
    take,
    lambda each: len(repr(each)),
)
