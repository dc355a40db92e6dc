"""What a router reports to people and publishers about what it holds (rule I-3's question, `describe`)."""

from __future__ import annotations

from typing import cast

from delivery_records.model import effects
from delivery_records.model.limits import CHANNEL_CREDIT_BYTES, OWING_NAMES
from delivery_records.model.outcomes import Decision, DeliveryOutcome
from tests.delivery_records.harness import Net
from tests.delivery_records.nodes import Node


def _rows(node: Node, table: str) -> list[dict[str, object]]:
    return cast("list[dict[str, object]]", node.tables()[table])


def test_a_waiting_publisher_may_ask_who_owes_it() -> None:
    net = Net(2)
    one, other = net.subscriber(net.nodes[0], "one"), net.subscriber(net.nodes[1], "other")
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    reported = publisher.ask(b"1")
    assert (reported.tag, sorted(reported.names), reported.count) == (b"1", ["one/link", "other/link"], 2)
    one.accept(b"1")
    assert list(publisher.ask(b"1").names) == ["other/link"]
    other.drop()  # away, and still owing
    assert list(publisher.ask(b"1").names) == ["other/link"]


def test_the_number_of_those_who_owe_is_reported_in_full_and_only_some_names() -> None:
    net = Net()
    for number in range(OWING_NAMES + 5):
        net.subscriber(net.nodes[0], f"s{number}")
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    reported = publisher.ask(b"1")
    assert (len(reported.names), reported.count) == (OWING_NAMES, OWING_NAMES + 5)


def test_nobody_owes_what_is_unknown_accepted_or_settled() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    assert publisher.ask(b"never sent").count == 0
    publisher.send(b"1")
    subscriber.accept(b"1")
    assert publisher.ask(b"1").count == 0
    publisher.settle(b"1")
    assert publisher.ask(b"1").count == 0


def test_a_question_is_answered_in_every_phase() -> None:
    net = Net(2)
    subscriber, publisher = net.subscriber(net.nodes[1]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    publisher.drop()
    again = net.publisher(net.nodes[1], unsettled={b"1": None})
    assert again.ask(b"1").count == 1  # not repeated yet
    again.send(b"1")
    subscriber.accept(b"1")
    assert again.ask(b"1").count == 0


def test_the_tables_notify_who_is_attached_where() -> None:
    net = Net(2)
    net.subscriber(net.nodes[1], "s", topic="orders.*")
    net.publisher(net.nodes[0], topic="orders.eu")
    for node in net.nodes:
        assert [(row["id"], row["leaving"]) for row in _rows(node, "routers")] == [("r0", False), ("r1", False)]
        (subscription,) = _rows(node, "subscriptions")
        assert (subscription["name"], subscription["router"], subscription["topic"]) == ("s/link", "r1", "orders.*")
        (publisher,) = _rows(node, "publishers")
        assert (publisher["name"], publisher["router"]) == ("p/link", "r0")
        assert publisher["session"] == publisher["epoch"]
    net.kill(net.nodes[1])
    assert _rows(net.nodes[0], "subscriptions")[0]["router"] == "gone"


def test_the_tables_notify_what_waits_for_whom() -> None:
    net = Net(2)
    subscriber, publisher = net.subscriber(net.nodes[1], limit=2), net.publisher(net.nodes[0])
    for tag in (b"1", b"2", b"3"):
        publisher.send(tag, bytes(100))
    subscriber.accept(b"1")
    (window,) = _rows(net.nodes[0], "windows")
    expected = {"publisher": "p/link", "phase": "active", "unsettled": 3, "unreceived": 0, "reported": 1, "bytes": 300}
    assert {key: window[key] for key in expected} == expected
    assert (window["waiting_for"], window["waiting_for_count"]) == (["s/link"], 1)
    (endpoint,) = _rows(net.nodes[1], "endpoints")
    assert (endpoint["entries"], endpoint["held"], endpoint["credit"]) == (3, 1, 0)
    assert endpoint["states"] == {"held": 1, "sent": 1, "done": 1}
    assert endpoint["confirmed"] is True


def test_the_tables_notify_the_state_of_channels() -> None:
    net = Net(2)
    net.subscriber(net.nodes[1])
    publisher = net.publisher(net.nodes[0])
    net.held = {(0, 1)}
    publisher.send(b"1", bytes(2 * CHANNEL_CREDIT_BYTES))
    (channel,) = _rows(net.nodes[0], "channels")
    assert (channel["router"], channel["state"], channel["waiting"]) == ("r1", "up", 1)


def test_a_busy_router_shows_everything_as_json() -> None:
    net = Net(3)
    for number in range(5):
        net.subscriber(net.nodes[number % 3], f"s{number}")
        net.stock_subscriber(net.nodes[(number + 1) % 3], f"t{number}")
    publishers = [net.publisher(net.nodes[number % 3], f"p{number}") for number in range(4)]
    publishers.append(net.stock_publisher(net.nodes[0], "stock"))
    for publisher in publishers:
        publisher.send(b"1")
        publisher.send(b"2", settled=True)
    publishers[0].drop()
    for node in net.nodes:
        tables = node.tables()
        assert set(tables) >= {"windows", "endpoints", "channels", "subscriptions", "publishers", "routers", "counts"}
        assert tables["applied"] == net.etcd.revision


def test_decisions_are_counted_by_name() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    subscriber.answer(DeliveryOutcome.RELEASED, b"1")
    counts = cast("dict[str, int]", net.nodes[0].tables()["counts"])
    assert counts[Decision.RETRY_SCHEDULED.value] == 1
    assert counts[Decision.DELIVERED.value] == 2
    assert all(counts.values())


def test_every_note_carries_plain_fields() -> None:
    net = Net(2)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[1])
    publisher.send(b"1")
    subscriber.drop()
    net.kill(net.nodes[1])
    for note in net.nodes[0].all(effects.Note):
        assert all(isinstance(value, (str, int, float, bool)) for value in note.fields.values()), note
