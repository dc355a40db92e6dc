"""docs/model-and-code.md names only what exists, and all of the model's actions."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import delivery_records
from chaos.mutants.catalogue import DIRECTED as DIRECTED_EDITS
from chaos.mutants.catalogue import EDITS
from chaos.simulator.actions import ACTIONS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "model-and-code.md").read_text(encoding="utf-8")
MODEL = {
    "P.connect",
    "P.send",
    "P.recv",
    "P.settle",
    "S.connect",
    "S.recv",
    "S.process",
    "R.recvP",
    "R.recvS",
    "R.recvR",
    "R.watch",
    "R.confirm",
    "R.fence",
    "R.restart",
    "K.lease",
    "!crash",
    "!iso",
    "!reset",
    "!dropP",
    "!dropS",
    "!expP",
    "!expS",
    "!pcrash",
    "!scrash",
    "!closeS",
}
"""The model's actions. `R.heal` and `K.reap` are missing: the page says why."""

ROOMS = (
    "delivery_records.",
    *(f"delivery_records.{room.name}." for room in pkgutil.iter_modules(delivery_records.__path__)),
)
"""Where the page's names of the record core may be: it does not name the rooms."""
INLINE_CODE = re.compile(r"`([^`\n]+)`")
DOTTED = re.compile(r"[a-z_]+(?:\.\w+)*")


def names(page: str) -> list[str]:
    """Everything that stands in code quotes."""
    return INLINE_CODE.findall(page)


def resolves(name: str) -> bool:
    """Whether a dotted name leads to something: the longest module, then attributes."""
    found: object
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        for package in (*ROOMS, ""):
            try:
                found = importlib.import_module(package + ".".join(parts[:length]))
            except ModuleNotFoundError:
                continue
            for part in parts[length:]:
                found = getattr(found, part, None)
                if found is None:
                    return False
            return True
    return False


def unknown(page: str) -> Iterator[str]:
    """Names on a page that stand for nothing."""
    known = {*MODEL, *ACTIONS, *(edit.name for edit in (*EDITS, *DIRECTED_EDITS))}
    for name in names(page):
        if name not in known and not (DOTTED.fullmatch(name) and resolves(name)):
            yield name


def test_every_name_on_the_page_exists() -> None:
    assert list(unknown(PAGE)) == []


@pytest.mark.parametrize(
    "name", ["ingress.Ingress.on_nothing", "no_such_module.Thing", "p.jump", "P.jump", "C99-no-such-edit"]
)
def test_a_name_that_does_not_exist_is_noticed(name: str) -> None:
    assert list(unknown(f"see `{name}` and `ingress.Ingress.on_flow`")) == [name]


def test_the_page_has_every_action_of_the_model() -> None:
    assert set(MODEL) - set(names(PAGE)) == set()
