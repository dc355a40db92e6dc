"""What `oncewire inspect` shows: columns by width, ages in words, tables kept up to date by the messages of a watch."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from oncewire.cli.errors import CliError
from topology.cli import inspect
from topology.inspector.ask_cli import read_state, shown_url
from topology.inspector.follow_cli import Followed, Wanted
from topology.inspector.rows_core import COLLECTIONS
from topology.inspector.show_cli import age, shown

NAME = "warehouse-in-rotterdam/everything-that-is-ordered"


def subscription(key: str, **more: Any) -> dict[str, Any]:
    return {
        "key": key,
        "name": f"{NAME}-{key}",
        "topic": "orders.#",
        "router": "r2",
        "rid": "7f",
        "epoch": 15,
        "incarnation": "9",
        "mode": "exactly-once",
        "timeout_s": 60.0,
        "peer": "10.0.0.1:5000",
        "state": "attached",
        "expires_in_s": None,
        "confirmed": True,
        "joins_behind": [],
        "lag": 3,
        "held": 1,
        "credit": 7,
        "former": 0,
        **more,
    }


def wait(**more: Any) -> dict[str, Any]:
    holder = {"subscription": "store/all", "key": "ab", "router": "r2", "rid": "7f", "since_s": 61.0, "state": "held"}
    return {
        "key": "w",
        "publisher": "till/1",
        "topic": "orders",
        "router": "r1",
        "rid": "7e",
        "phase": "active",
        "unsettled": 4,
        "granted": 8,
        "bytes": 100,
        "credit": 0,
        "oldest_s": 75.0,
        "oldest_tag": "00aa",
        "reason": "subscriptions",
        "waiting_for": [holder],
        "waiting_for_count": 3,
        **more,
    }


OVERVIEW: dict[str, Any] = {
    "key": "overview",
    "router": "r1",
    "rid": "7e",
    "version": "1.2.3",
    "uptime_s": 7200.0,
    "ready": False,
    "waiting_for": ["a lease in etcd"],
    "draining": None,
    "lease_left_s": 0.0,
    "applied": 17,
    "standalone": False,
    "counts": dict.fromkeys(
        (
            "routers",
            "links",
            "topics",
            "subscriptions",
            "publishers",
            "windows",
            "joining",
            "connections",
            "waiting_publishers",
            "delayed_1s",
            "stuck_10s",
            "held_10s",
        ),
        2,
    ),
    "can": {"manage": False, "bodies": False},
}


def lines(what: str, document: dict[str, Any], width: int) -> list[str]:
    console = Console(width=width)
    with console.capture() as reported:
        console.print(shown(what, document, width))
    return reported.get().splitlines()


def test_on_a_narrow_terminal_names_stay_whole_and_columns_are_left_out() -> None:
    document = {"subscriptions": [subscription("a"), subscription("b")], "total": 2}
    found = lines("subscriptions", document, 80)
    assert max(map(len, found)) <= 80
    assert {"subscription", "router", "state"} <= set(found[0].split())
    assert "peer" not in found[0]
    assert f"{NAME}-a" in found[1]
    assert len(found) == 3


def test_a_wide_one_shows_every_column_that_says_something() -> None:
    heading, row = lines("subscriptions", {"subscriptions": [subscription("a")], "total": 1}, 300)
    assert {"topic", "lag", "credit", "held", "mode", "epoch", "client", "incarnation"} <= set(heading.split())
    assert "joins" not in heading  # nobody joins
    assert "1 min" in row


def test_a_name_that_is_wider_than_the_terminal_is_folded_and_not_cut() -> None:
    found = lines("subscriptions", {"subscriptions": [subscription("a" * 60)], "total": 1}, 60)
    assert "".join(line.split()[0] for line in found[1:]) == NAME + "-" + "a" * 60


@pytest.mark.parametrize("table", [name for name in COLLECTIONS if name != "waits"])
def test_every_table_can_be_empty(table: str) -> None:
    assert lines(table, {table: [], "total": 0}, 80) == [f"no {table}"]


def test_rows_that_are_left_out_are_counted() -> None:
    assert "1 of 10000" in lines("subscriptions", {"subscriptions": [subscription("a")], "total": 10_000}, 80)[-1]


def test_a_wait_says_who_waits_since_when_for_whom_and_why() -> None:
    text = "\n".join(lines("waits", {"waits": [wait()], "total": 1}, 80))
    assert "till/1 at r1, orders: window 4 of 8 used, the oldest since 1 min" in text
    assert "waits for store/all at r2 (held, 1 min)" in text
    assert "and 2 more" in text
    assert "its owner" not in text, "a router of the release before does not name it"
    (holder,) = wait()["waiting_for"]
    known = {**holder, "owner": "feed of a work queue", "ends_with": "oncewire manage delete subscription store/all"}
    for seconds, is_reported in ((61.0, True), (9.0, False)):
        found = wait(waiting_for=[{**known, "since_s": seconds}])
        text = "\n".join(lines("waits", {"waits": [found], "total": 1}, 200))
        hint = f"its owner: feed of a work queue; if nobody needs it any more: {known['ends_with']}"
        assert (hint in text) == is_reported
    assert "tag 00aa" in text
    settles = wait(reason="publisher-settles", waiting_for=[], waiting_for_count=0)
    assert "has not settled it yet" in "\n".join(lines("waits", {"waits": [settles], "total": 1}, 80))
    unnamed = wait(waiting_for=[])
    assert "waits for 3 subscriptions" in "\n".join(lines("waits", {"waits": [unnamed], "total": 1}, 80))


def test_a_router_that_is_not_ready_says_what_it_waits_for() -> None:
    found = "\n".join(lines("overview", {"overview": OVERVIEW, "waits": []}, 100))
    assert "waits for a lease in etcd" in found
    assert "up 2.0 h" in found
    assert "no publisher waits" in found


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.0, "0.0 s"), (59.9, "59.9 s"), (61, "1 min"), (7200, "2.0 h"), (2 * 86_400, "2.0 d")]
)
def test_ages_are_shown_with_units(seconds: float, words: str) -> None:
    assert age(seconds) == words


def test_an_event_shows_no_fields_that_are_empty() -> None:
    fields = {"container_id": "till", "user": "", "links": 0}
    row = {"key": "1", "seq": 1, "time": "12:00", "level": "info", "event": "client_connected", "fields": fields}
    shown_row = lines("events", {"events": [row]}, 120)[1]
    assert shown_row.split() == ["12:00", "info", "client_connected", "container_id=till", "links=0"]


def test_markup_in_names_is_text() -> None:
    row = subscription("a", name="[bold]x[/]/[link=http://evil]y", topic="[red]t")
    assert "[bold]x[/]/[link=http://evil]y" in lines("subscriptions", {"subscriptions": [row], "total": 1}, 200)[1]


# --- a watch ----------------------------------------------------------------------------------------------------------


def snapshot(table: str, *rows: dict[str, Any], total: int | None = None) -> dict[str, Any]:
    return {
        "type": "snapshot",
        "table": table,
        "items": list(rows),
        "next": None,
        "total": len(rows) if total is None else total,
        "applied": 1,
    }


def changes(table: str, put: list[dict[str, Any]], delete: list[str]) -> dict[str, Any]:
    return {"type": "changes", "applied": 2, "tables": {table: {"put": put, "delete": delete}}}


def test_a_table_follows_the_messages_of_a_watch() -> None:
    followed = Followed(["subscriptions"], Wanted("subscriptions"))
    assert followed.take(snapshot("subscriptions", subscription("b"), subscription("c"), total=900))
    assert followed.take(changes("subscriptions", [subscription("a"), subscription("c", router="r3")], ["b"]))
    reported = followed.document()
    assert [(row["key"], row["router"]) for row in reported["subscriptions"]] == [("a", "r2"), ("c", "r3")]
    assert (reported["total"], reported["applied"]) == (900, 2)
    assert followed.take(snapshot("subscriptions"))
    assert followed.document()["subscriptions"] == []


def test_the_overview_is_shown_when_both_of_its_tables_are_there_and_its_ages_grow() -> None:
    followed = Followed(["overview", "waits"], Wanted("overview"))
    assert not followed.take(snapshot("overview", OVERVIEW))
    assert followed.take(snapshot("waits", wait(key="x", oldest_s=2.0), wait()))
    reported = followed.document()
    assert reported["overview"]["router"] == "r1"
    assert [row["key"] for row in reported["waits"]] == ["w", "x"]
    assert reported["waits"][0]["oldest_s"] >= 75.0
    assert reported["waits"][0]["waiting_for"][0]["since_s"] >= 61.0


def test_events_are_kept_in_order_and_not_for_ever() -> None:
    followed = Followed(["events"], Wanted("events"))
    followed.take(snapshot("events"))
    for seq in range(1, 1_200):
        followed.take(changes("events", [{"key": str(seq), "seq": seq}], []))
    reported = followed.document()
    assert [row["seq"] for row in reported["events"]] == list(range(200, 1_200))
    assert reported["next"] == 1_199


@pytest.mark.parametrize(
    ("wanted", "is_reported"),
    [
        (Wanted("overview"), True),
        (Wanted("subscriptions", topic="orders"), True),
        (Wanted("links"), True),
        (Wanted("links", router="r1"), False),
        (Wanted("subscriptions", match="x"), False),
        (Wanted("waits", network=True), False),
        (Wanted("delivery", tag="00"), False),
    ],
)
def test_what_a_watch_cannot_narrow_is_asked_for_again_and_again(wanted: Wanted, is_reported: bool) -> None:
    assert wanted.is_reported is is_reported


# --- the command ------------------------------------------------------------------------------------------------------


async def test_the_error_names_the_address_when_no_router_answers() -> None:
    with pytest.raises(CliError) as refused:
        await read_state("http://127.0.0.1:1")
    assert "http://127.0.0.1:1" in refused.value.what
    assert "--url" in refused.value.fix


def test_an_address_is_shown_without_its_password() -> None:
    assert shown_url("http://ann:secret@router:8672/") == "http://router:8672"
    assert "secret" not in shown_url("http://ann:secret@[bad:8672")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("delivery",), "no delivery is named"),
        (("links", "00"), "links takes no '00'"),
        (("events", "--topic", "orders"), "events is not filtered by --topic"),
        (("links", "--publisher", "a/b"), "links is not filtered by --publisher"),
        (("routers", "--topic", "orders"), "routers have no topic"),
        (("topics", "--router", "r1"), "topics are not those of one router"),
        (("connections", "--router", "r1"), "connections are not those of one router"),
        (("subscriptions", "--match", "\u00fc" * 1025), "--match is longer than 2048 bytes"),
        (("subscriptions", "--match", "\udcff"), "--match is not UTF-8"),
        (("delivery", "../overview"), "'../overview' is not hex"),
        (("delivery", "%30%30"), "'%30%30' is not hex"),
        (("delivery", "00?publisher=a/b"), "is not hex"),
        (("delivery", "00" * 33), "is not 1 to 32 bytes"),
    ],
)
def test_options_that_would_do_nothing_are_refused(arguments: tuple[str, ...], why: str) -> None:
    found = CliRunner().invoke(inspect, arguments)
    assert found.exit_code == 2
    assert why in found.output
