"""The references of management and settings and the schema say the same, and what stands between its tables is true."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncewire.transport.guarded_logins import FAILURE_WINDOW_S, MAX_FAILURES
from router.authentication.passwords import GUESS_WINDOW_S, MAX_GUESSES
from router.commands.manage import manage
from router.operator.access import PROXY_HEADERS
from router.operator.amqp_node import CREDIT, MAX_LINKS, MAX_REQUEST_BYTES, MAX_WAITING
from router.operator.amqp_requests import NODE_TYPE
from router.operator.management_routes import PREFIX
from router.operator.reference import INSPECTOR_PAGE, PAGE, SETTINGS_PAGE, written
from router.operator.schema import TYPES
from router.operator.service import MAX_ROWS
from router.process.logs import RouterEvent
from router.settings.config_loading import SETTINGS
from topology.inspector.schema.model import Role

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")
BOTH = TEXT + (ROOT / "docs" / "logins.md").read_text(encoding="utf-8")
"""With the roles of operators, which stand on the page of logins."""
SETTINGS_TEXT = (ROOT / SETTINGS_PAGE).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", [PAGE, SETTINGS_PAGE, INSPECTOR_PAGE], ids=lambda page: page.stem)
def test_the_tables_of_the_page_are_those_of_the_schema(page: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert written(page, text) == text, "run `python -m router.operator.reference` in the project's folder"


def test_a_row_that_is_changed_left_out_or_put_in_by_hand_is_noticed() -> None:
    text = SETTINGS_TEXT
    row = next(line for line in text.splitlines(keepends=True) if line.startswith("| `log.level` "))
    for changed in (text.replace(row, ""), text.replace(row, row + row), text.replace("debug, info", "debug, notice")):
        assert changed != text
        assert written(SETTINGS_PAGE, changed) == text


@pytest.mark.parametrize("name", list(TYPES))
def test_every_type_has_its_section(name: str) -> None:
    assert f"\n### {name}\n" in TEXT


def test_every_setting_has_a_row() -> None:
    assert [s.key for s in SETTINGS.values() if f"\n| `{s.key}` |" not in SETTINGS_TEXT] == []


def test_the_numbers_between_the_tables_are_those_of_the_code() -> None:
    words = " ".join(BOTH.split())
    for said in (
        f"at most {MAX_ROWS} of them",
        f"After {MAX_FAILURES} wrong passwords from one address within {FAILURE_WINDOW_S:g} s",
        f"after {MAX_GUESSES} different wrong passwords within {GUESS_WINDOW_S:g} s",
        f"at most {MAX_LINKS} such links, {CREDIT} requests of {MAX_REQUEST_BYTES // 1024} KiB",
        f"when more than {MAX_WAITING} requests",
        f"`{NODE_TYPE}`",
        f"GET {PREFIX}/schema",
    ):
        assert said in words, said


def test_every_sign_of_a_proxy_stands_on_the_page() -> None:
    assert all(f"`{name}`" in BOTH.lower() for name in PROXY_HEADERS)


def test_every_role_stands_on_the_page_and_every_event_exists() -> None:
    assert all(f"| {role.word} |" in BOTH for role in Role if role is not Role.NONE)
    events = {event.value for event in RouterEvent}
    for name in ("login_failed", "management_done", "management_refused"):
        assert f"`{name}`" in BOTH
        assert name in events


def test_every_command_of_the_page_exists() -> None:
    assert {"list", "show", "set", "delete", "call", "reload"} == set(manage.commands)
