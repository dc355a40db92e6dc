"""Events in a ring, changes since what was shown, and what readers may ask."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from topology.inspector.answers_core import answer_of
from topology.inspector.changes_core import MAX_MARKS, Shown, ShownAttachments
from topology.inspector.events_core import EVENTS_KEPT, MAX_TEXT, EventRing
from topology.inspector.parameters_core import WAIT_PARAMETERS, after_of, page_request, tag_of, watch_request, wish_id
from topology.inspector.rows_core import MAX_ROWS, Filter, Head, InputError, Row
from topology.inspector.show_cli import shown

# --- what has become of a delivery ------------------------------------------------------------------------------------


def record(role: str, router: str, state: str = "in-doubt", **more: object) -> Row:
    return {
        "network_tag": "00",
        "role": role,
        "router": router,
        "state": state,
        "local_subscriptions": [],
        "local_count": 0,
        "other_routers": [],
        "arrived_s": 3.0,
        **more,
    }


def local(name: str, state: str, detail: str) -> Row:
    return {"name": name, "state": state, "detail": detail, "since_s": None}


@pytest.mark.parametrize(
    ("found", "state", "text", "waiting"),
    [
        ([], "unknown", "No router has a record of it", []),
        ([record("past", "r1", "settled")], "settled", "It is settled: no router has a record", []),
        (
            [
                record(
                    "ingress",
                    "r1",
                    local_subscriptions=[local("a/1", "accepted", "done")],
                    local_count=1,
                    other_routers=[{"router": "r2", "subscriptions": 2, "owing": 1}],
                ),
                record(
                    "egress", "r2", local_subscriptions=[local("b/1", "in-doubt", "held"), local("b/2", "accepted", "")]
                ),
            ],
            "in-doubt",
            "Not accepted yet: 1 of 3 subscriptions has not accepted it.",
            [("b/1", "r2", "held", 3.0)],
        ),
        ([record("ingress", "r1")], "in-doubt", "All 0 subscriptions have processed it; an earlier", []),
        ([record("ingress", "r1", "accepted")], "accepted", "Accepted; its publisher has the outcome", []),
        ([record("ingress", "r1", "rejected")], "rejected", "Rejected; its publisher has the outcome", []),
        (
            [record("egress", "r2", local_subscriptions=[local("b/1", "in-doubt", "sent")])],
            "in-doubt",
            "1 subscription has not accepted it; its publisher's router is not among these.",
            [("b/1", "r2", "in-doubt", None)],
        ),
        ([record("egress", "r2", "accepted")], "accepted", "Done at the routers below", []),
        ([record("egress", "r1"), record("egress", "r1", network_tag="01")], "unknown", "Several deliveries", []),
    ],
)
def test_one_sentence_says_what_has_become_of_a_delivery(
    found: list[Row], state: str, text: str, waiting: list[tuple[object, ...]]
) -> None:
    answer = answer_of(found)
    assert answer["state"] == state
    assert str(answer["text"]).startswith(text)
    rows = answer["waiting_for"]
    assert isinstance(rows, list)
    assert [(each["subscription"], each["router"], each["state"], each["since_s"]) for each in rows] == waiting


# --- events -----------------------------------------------------------------------------------------------------------


def ring_of(count: int) -> EventRing:
    ring = EventRing()
    for number in range(count):
        ring.add(float(number), "info", "thing_done", {"number": number})
    return ring


def test_events_come_in_order_and_go_on_where_the_reader_was() -> None:
    ring = ring_of(10)
    page = ring.after(3, 4)
    assert [item["seq"] for item in page.items] == [4, 5, 6, 7]
    assert (page.next, page.dropped) == (7, 0)
    assert [item["seq"] for item in ring.after(page.next, 100).items] == [8, 9, 10]
    assert ring.after(10, 5).items == []
    assert ring.after(10, 5).next == 10


def test_without_a_number_the_newest_events_are_reported() -> None:
    assert [item["seq"] for item in ring_of(10).after(None, 3).items] == [8, 9, 10]
    assert ring_of(0).after(None, 3).items == []


def test_a_reader_that_is_late_is_reported_how_many_are_gone() -> None:
    ring = ring_of(EVENTS_KEPT + 50)
    page = ring.after(10, 5)
    assert [item["seq"] for item in page.items] == [51, 52, 53, 54, 55]
    assert page.dropped == 40


def test_a_number_from_before_a_restart_does_not_hide_events() -> None:
    page = ring_of(5).after(4_000, 10)
    assert (page.items, page.next) == ([], 5)


def test_fields_go_out_as_json_that_a_browser_reads_exactly() -> None:
    ring = EventRing()
    ring.add(0.0, "info", "x", {"big": 2**60, "tag": b"\x01\xff", "long": "y" * 5000, "none": None, "share": 0.5})
    (item,) = ring.after(0, 1).items
    assert item["fields"] == {"big": str(2**60), "tag": "01ff", "long": "y" * MAX_TEXT, "none": None, "share": 0.5}
    assert item["time"] == "1970-01-01T00:00:00.000Z"


# --- changes ----------------------------------------------------------------------------------------------------------


def row(key: str, value: object = 0, **more: object) -> Row:
    return {"key": key, "value": value, **more}


def apply(have: dict[object, Row], put: list[Row], delete: list[str]) -> None:
    for each in put:
        have[each["key"]] = each
    for key in delete:
        have.pop(key, None)


Tables = st.lists(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 3)), min_size=1, max_size=8)


@given(Tables, st.integers(1, 3))
def test_a_reader_that_applies_the_changes_has_the_table(tables: list[dict[str, int]], most: int) -> None:
    rows = [row(key, value) for key, value in tables[0].items()]
    shown = Shown(rows)
    have = {each["key"]: each for each in rows}
    for table in tables[1:]:
        rows = [row(key, value) for key, value in table.items()]
        changes = shown.compare(rows, most)
        assert len(changes.put) <= most
        apply(have, changes.put, changes.delete)
    while changes := shown.compare(rows, most):
        apply(have, changes.put, changes.delete)
    assert have == {each["key"]: each for each in rows}


def test_ages_alone_are_no_change() -> None:
    waits = [{"subscription": "s", "since_s": 1.0}]
    shown = Shown([row("a", oldest_s=1.0, waiting_for=waits, lease_left_s=6.9, draining={"left_s": 4.0})])
    older = [{"subscription": "s", "since_s": 2.0}]
    assert not shown.compare([row("a", oldest_s=2.0, waiting_for=older, lease_left_s=6.1, draining={"left_s": 3.0})], 9)
    assert shown.compare([row("a", oldest_s=2.0, waiting_for=[], lease_left_s=6.1, draining={"left_s": 3.0})], 9).put
    assert shown.compare([row("a", oldest_s=2.0, waiting_for=[], lease_left_s=5.9, draining=None)], 9).put


class Table:
    """Rows that a watcher may be notified of; counts how often they are looked up."""

    def __init__(self, count: int, topic: str = "orders") -> None:
        self.rows = {f"{number:05}": row(f"{number:05}", topic=topic) for number in range(count)}
        self.looked = 0

    def head(self, table: str, key: str) -> Head | None:
        found = self.rows.get(key)
        return None if found is None else Head(key, key, key, str(found["topic"]))

    def row(self, table: str, key: str) -> Row | None:
        self.looked += 1
        return self.rows.get(key)


def test_of_a_large_table_only_marked_rows_and_those_of_the_snapshot_are_looked_at() -> None:
    table = Table(10_000)
    shown = ShownAttachments("subscriptions", Filter(), list(table.rows.values())[:MAX_ROWS])
    for key in ("00003", "09999"):
        table.rows[key] = row(key, 1, topic="orders")
        shown.mark(key, table.head("", key))
    changes = shown.changes(table, 500)
    assert [each["key"] for each in changes.put] == ["00003", "09999"]
    assert table.looked <= MAX_ROWS + 2
    assert not shown.changes(table, 500)


def test_a_row_that_leaves_the_wanted_topic_or_goes_is_deleted_and_one_of_another_topic_is_not_reported() -> None:
    table = Table(4)
    table.rows["00002"] = row("00002", topic="bills")
    wanted = Filter(topic="orders")
    shown = ShownAttachments("subscriptions", wanted, [table.rows["00000"], table.rows["00001"]])
    for key in table.rows:
        shown.mark(key, table.head("", key))
    table.rows["00000"] = row("00000", topic="bills")
    table.rows["00002"] = row("00002", 1, topic="bills")
    del table.rows["00001"], table.rows["00003"]
    changes = shown.changes(table, 500)
    assert (changes.put, sorted(changes.delete)) == ([], ["00000", "00001", "00003"])


def test_numbers_of_rows_in_the_snapshot_are_reported_without_a_mark() -> None:
    table = Table(3)
    shown = ShownAttachments("subscriptions", Filter(), list(table.rows.values()))
    table.rows["00001"] = row("00001", 7, topic="orders")
    assert shown.changes(table, 500).put == [table.rows["00001"]]


def test_more_marks_than_are_worth_it_ask_for_a_new_snapshot() -> None:
    shown = ShownAttachments("subscriptions", Filter(), [])
    assert all(shown.mark(str(number), None) for number in range(MAX_MARKS))
    assert not shown.mark("one more", None)


def test_one_message_has_at_most_so_many_rows_and_the_next_has_the_rest() -> None:
    table = Table(1_200)
    shown = ShownAttachments("subscriptions", Filter(), [])
    for key in table.rows:
        shown.mark(key, None)
    assert [len(shown.changes(table, 500).put) for _ in range(4)] == [500, 500, 200, 0]


# --- parameters -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        {"limit": "0"},
        {"limit": "501"},
        {"limit": "-1"},
        {"limit": "ten"},
        {"limit": ""},
        {"limit": "1" * 99},
        {"limit": "٣"},
        {"topik": "orders"},
        {"topic": "x" * 5000},
        {"min_s": "nan"},
        {"min_s": "-1"},
        {"min_s": "soon"},
        {"network": "yes"},
    ],
)
def test_parameters_that_make_no_sense_are_refused_with_what_to_do(query: dict[str, str]) -> None:
    with pytest.raises(InputError) as refused:
        page_request(query, WAIT_PARAMETERS)
    assert refused.value.fix
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("after", ["-1", "x", "1.5"])
def test_a_number_of_an_event_that_is_none_is_refused(after: str) -> None:
    with pytest.raises(InputError):
        after_of({"after": after})


@pytest.mark.parametrize("text", ["", "0", "zz", "00 11", "0x00", "00" * 33, " 00"])
def test_a_tag_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        tag_of(text)


def test_a_tag_is_one_to_32_bytes() -> None:
    assert tag_of("00ff") == b"\x00\xff"
    assert tag_of("AB" * 32) == b"\xab" * 32


@pytest.mark.parametrize(
    "wish",
    [
        None,
        [],
        "overview",
        {},
        {"tables": []},
        {"tables": "overview"},
        {"tables": ["windows"]},
        {"tables": [[]]},
        {"tables": ["overview"], "topic": 5},
        {"tables": ["overview"], "id": "x" * 65},
        {"tables": ["overview"], "a": 1},
    ],
)
def test_a_wish_that_makes_no_sense_is_refused_with_an_example(wish: object) -> None:
    with pytest.raises(InputError) as refused:
        watch_request(wish)
    assert refused.value.fix


def test_a_topic_adds_the_tables_it_narrows() -> None:
    asked = watch_request({"tables": ["overview", "topics"], "topic": "orders", "router": None})
    assert asked.tables == ("overview", "topics", "subscriptions", "publishers", "waits")
    assert asked.filter_of("subscriptions") == Filter(topic="orders")
    assert asked.filter_of("topics") == Filter()


@pytest.mark.parametrize(("wish", "reported"), [({"id": "7"}, "7"), ({"id": 7}, ""), ([], ""), ({"id": "x" * 65}, "")])
def test_a_refusal_carries_the_id_of_its_wish_if_that_can_be_read(wish: object, reported: str) -> None:
    read: Callable[[object], str] = wish_id
    assert read(wish) == reported


def test_control_characters_in_names_of_clients_are_escaped() -> None:
    name = "box\x1b[2J\r\n[/b]/sub"
    event = {"time": "", "level": "info", "event": "x", "fields": {name: [name]}}
    topic = {"name": name, "publishers": 0, "subscriptions": 0, "waiting": 0}
    for table, document in (("topics", {"topics": [topic]}), ("events", {"events": [event]})):
        console = Console(width=200)
        with console.capture() as reported:
            console.print(shown(table, document, 200))
        assert all(line.isprintable() for line in reported.get().splitlines())
        assert r"box\u001b[2J\r\n[/b]/sub" in reported.get()
