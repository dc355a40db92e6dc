"""The pages of error conditions are what the table makes of them, and each condition that the code sends has one."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from oncewire.wire import errors
from oncewire.wire.types import Symbol

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "reference" / "errors"
CONDITION = re.compile(r'"((?:amqp|oncewire):[a-z:-]+)"')
OTHER_SYMBOLS = re.compile(
    r"amqp:[a-z-]+:(?:list|map|binary|\*)|amqp:(?:application-)?properties-filter|amqp:connection-establishment-failed"
)
"""Types, filters, and the property of an open that a close follows (sole connections)."""
PACKAGES = ("oncewire", "router", "delivery_records", "bridges", "topology")


@pytest.fixture
def generator(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(ROOT)
    return runpy.run_path("scripts/error_pages.py")


def test_the_pages_are_what_the_table_makes_of_them(generator: dict[str, Any]) -> None:
    there = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    assert there == generator["pages"](), "run `python scripts/error_pages.py` in the project's folder"


def test_each_condition_that_the_code_names_has_a_page(generator: dict[str, Any]) -> None:
    sources = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    named = {found for path in sources for found in CONDITION.findall(path.read_text(encoding="utf-8"))}
    named = {name for name in named if not OTHER_SYMBOLS.fullmatch(name)}
    named |= {str(value) for value in vars(errors).values() if isinstance(value, Symbol)}
    assert len(named) > 30
    pages = {generator["condition_of"](path.stem) for path in FOLDER.glob("*.md") if path.stem != "index"}
    assert named - pages == set()
    assert pages - named == set(), "a page of a condition that nothing sends"


def test_each_setting_and_error_that_the_pages_name_exists() -> None:
    import oncewire.client
    from router.settings.config_loading import SETTINGS

    keys = {setting.key for setting in SETTINGS.values()}
    text = (FOLDER / "conditions.toml").read_text(encoding="utf-8")
    code = re.findall(r"`([^`]+)`", text)
    assert {word for word in code if re.fullmatch(r"(?:limits|listen|slow|quota|access)\.[a-z_]+", word)} <= keys
    assert {word for word in code if re.fullmatch(r"(?:[A-Z][a-z]+){2,}", word)} <= set(dir(oncewire.client))
