"""One router of a net: its core, and what its watch, etcd and neighbours have delivered to it."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field
from typing import TypeVar

from delivery_records.model import effects, inputs
from delivery_records.model.inputs import StoreFailure
from delivery_records.model.outcomes import Decision
from delivery_records.records import Records

E = TypeVar("E")


@dataclass(slots=True)
class StoreFault:
    """What becomes of the next read or put of a router."""

    failure: StoreFailure
    is_applied: bool = False
    """The operation takes place although it is reported as failed."""


@dataclass(slots=True)
class Node:
    """One router: its core, what its watch has delivered, and every effect it asked for."""

    rid: int
    core: Records
    seen: int = 0
    done: list[effects.Effect] = field(default_factory=list)
    answers: deque[inputs.Input] = field(default_factory=deque)
    faults: deque[StoreFault] = field(default_factory=deque)
    is_watch_held: bool = False
    is_store_held: bool = False
    waiting: deque[effects.Read | effects.Propose] = field(default_factory=deque)
    """Operations that have not reached etcd while `is_store_held`."""
    is_gone: bool = False

    def all(self, kind: type[E]) -> list[E]:
        """All effects of one kind, oldest first."""
        return [effect for effect in self.done if isinstance(effect, kind)]

    def count(self, decision: Decision) -> int:
        """How often the core took a decision."""
        return self.core.counts[decision]

    def tables(self) -> dict[str, object]:
        """`describe()` as somebody who reads JSON gets it."""
        tables = json.loads(json.dumps(self.core.describe()))
        assert isinstance(tables, dict)
        return tables
