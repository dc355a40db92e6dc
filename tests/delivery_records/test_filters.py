"""What a subscription's filter excludes, and what becomes of it (rule E-9)."""

from __future__ import annotations

from collections import Counter

from delivery_records.model import effects, inputs
from delivery_records.model.outcomes import Decision, DeliveryOutcome
from delivery_records.model.view import SubscriptionMode
from delivery_records.subscriber.filters import CompiledFilter, MessageFilters, UnknownFilter
from tests.delivery_records.harness import Net
from tests.delivery_records.links import SubscriberLink


class Words:
    """An engine whose filters are a word that the message must contain; `not local` excludes own messages."""

    def __init__(self) -> None:
        self.tested: Counter[str] = Counter()
        self.opened = 0

    def compile(self, text: str) -> CompiledFilter:
        if text == "???":
            raise UnknownFilter("a filter of a newer release")
        if text == "not local":
            return CompiledFilter(no_local=True)

        def test(opened: object) -> bool | None:
            self.tested[text] += 1
            assert isinstance(opened, bytes)
            return None if opened == b"costly" else text.encode() in opened

        return CompiledFilter(test=test)

    def open(self, message: bytes, message_format: int) -> object:
        self.opened += 1
        return message if message_format == 0 else b""


def test_what_does_not_match_is_accepted_without_credit_and_leaves_nothing() -> None:
    net = Net(2, filters=Words())
    subscriber = net.subscriber(net.nodes[0], filter_text="red", limit=0)
    publisher = net.publisher(net.nodes[1])
    publisher.send(b"1", b"blue")
    assert publisher.accepted == [1]
    egress = next(iter(net.nodes[0].core.egresses.values()))
    assert egress.unsettled == 0
    assert egress.outgoing.held == 0
    assert net.nodes[0].count(Decision.FILTERED) == 1
    publisher.send(b"2", b"red")
    subscriber.flow(10)
    assert subscriber.deliveries == [b"2"]


def test_what_a_filter_is_too_costly_for_does_not_match_and_is_counted_and_logged() -> None:
    net = Net(1, filters=Words())
    subscriber = net.subscriber(net.nodes[0], filter_text="red")
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1", b"costly")
    publisher.send(b"2", b"red")
    assert publisher.accepted == [1]
    assert subscriber.deliveries == [b"2"]
    assert net.nodes[0].count(Decision.FILTER_TOO_COSTLY) == 1
    noted = [note for note in net.nodes[0].all(effects.Note) if note.decision is Decision.FILTER_TOO_COSTLY]
    assert [note.fields["subscription"] for note in noted] == ["s/link"]


def test_an_excluded_delivery_does_not_make_a_sync_skip_those_held_before_it() -> None:
    """The counterexample of E-9: 1 is held, 2 is excluded, and the next epoch's SYNC names both."""
    net = Net(2, filters=Words())
    subscriber = net.subscriber(net.nodes[0], filter_text="red", limit=0)
    first = net.publisher(net.nodes[1])
    first.send(b"1", b"red")
    first.send(b"2", b"blue")
    assert first.accepted == [], "I-3: in order"
    first.drop()
    second = net.publisher(net.nodes[1], unsettled={b"1": None, b"2": None})
    second.send(b"1", b"red")
    second.send(b"2", b"blue")
    assert second.accepted == []
    subscriber.flow(10)
    assert subscriber.deliveries == [b"1"]
    subscriber.accept(b"1")
    assert second.accepted == [1, 2]


def test_what_lies_before_an_entry_of_the_map_is_skipped_whether_it_was_excluded_or_not() -> None:
    net = Net(3, filters=Words())
    first = net.subscriber(net.nodes[2], filter_text="red")
    publisher = net.publisher(net.nodes[1])
    for tag, body in ((b"1", b"blue"), (b"2", b"red"), (b"3", b"blue"), (b"4", b"red")):
        publisher.send(tag, body)
    assert first.deliveries == [b"2", b"4"]
    unsettled = {first.network_tag(tag): None for tag in (b"2", b"4")}
    net.kill(net.nodes[2])
    second = net.subscriber(net.nodes[0], filter_text="red", unsettled=unsettled)
    assert [(d.tag[11:], d.resume) for d in second.all(effects.Deliver)] == [(b"2", True), (b"4", True)]
    second.accept(b"2", b"4")
    assert publisher.accepted == [1, 2, 3, 4]


def test_an_entry_of_the_map_is_resumed_although_the_filter_excludes_it() -> None:
    """It came under another filter; its subscriber knows it and waits for its message."""
    net = Net(3, filters=Words())
    first = net.subscriber(net.nodes[2])
    publisher = net.publisher(net.nodes[1])
    publisher.send(b"1", b"blue")
    tag = first.network_tag(b"1")
    net.kill(net.nodes[2])
    net.advance(0.1)
    second = net.subscriber(net.nodes[0], filter_text="red", unsettled={tag: DeliveryOutcome.ACCEPTED})
    assert second.last(effects.SubscriberReply).kept == [tag]
    assert not second.last(effects.SubscriberReply).resumed, "another filter, another subscription"
    assert publisher.accepted == [1]


def test_another_filter_is_another_subscription() -> None:
    net = Net(filters=Words())
    first = net.subscriber(net.nodes[0], filter_text="red")
    created = first.last(effects.SubscriberReply).incarnation
    first.drop()
    same = net.subscriber(net.nodes[0], filter_text="red")
    assert same.last(effects.SubscriberReply).incarnation == created
    same.drop()
    other = net.subscriber(net.nodes[0], filter_text="blue")
    assert other.last(effects.SubscriberReply).incarnation > created
    assert other.last(effects.SubscriberReply).filter == "blue"


def test_a_look_up_keeps_the_filter() -> None:
    net = Net(filters=Words())
    net.subscriber(net.nodes[0], filter_text="red").drop()
    found = net.subscriber(net.nodes[0], topic=None)
    assert found.last(effects.SubscriberReply).resumed
    assert found.last(effects.SubscriberReply).filter == "red"
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1", b"blue")
    assert found.deliveries == []


def test_a_filter_that_this_release_cannot_read_is_refused_and_nothing_is_written() -> None:
    net = Net(filters=Words())
    link = SubscriberLink(net, net.nodes[0])
    link.attach(filter_text="???")
    assert link.end().condition == "amqp:not-implemented"
    assert "newer release" in link.end().description
    assert not net.has_subscription()


def test_a_router_without_an_engine_refuses_filters() -> None:
    net = Net()
    link = SubscriberLink(net, net.nodes[0])
    link.attach(filter_text="red")
    assert link.end().condition == "amqp:not-implemented"


def test_no_local_is_decided_by_the_publishers_key() -> None:
    net = Net(2, filters=Words())
    mine = inputs.Owner(user="anna")
    subscriber = net.subscriber(net.nodes[0], "c", filter_text="not local", owner=mine)
    own = net.publisher(net.nodes[1], "c", owner=mine)
    own.send(b"1")
    assert own.accepted == [1]
    of_another_user = net.publisher(net.nodes[1], "c", owner=inputs.Owner(user="bert"))
    of_another_user.send(b"2")
    other = net.publisher(net.nodes[1], "d", owner=mine)
    other.send(b"3")
    assert subscriber.deliveries == [b"2", b"3"]
    own.drop()
    again = net.publisher(net.nodes[0], "c", owner=mine)
    again.send(b"4")
    assert again.accepted == [1]
    assert subscriber.deliveries == [b"2", b"3"]


def test_equal_filters_are_evaluated_once_for_a_message_and_no_message_is_kept() -> None:
    words = Words()
    net = Net(2, filters=words)
    for name in ("s1", "s2", "s3"):
        net.subscriber(net.nodes[0], name, filter_text="red")
    net.subscriber(net.nodes[0], "s4", filter_text="blue")
    publisher = net.publisher(net.nodes[1])
    publisher.send(b"1", b"green")
    publisher.send(b"2", b"green")
    assert words.tested == {"red": 2, "blue": 2}
    assert words.opened == 2, "once for each message, whatever the number of filters"
    assert publisher.accepted == [1, 2]
    held = net.nodes[0].core._filters
    assert (held.is_used, held._message, held._opened) == (False, b"", None)


def test_settled_messages_are_filtered_too() -> None:
    net = Net(filters=Words())
    exactly = net.subscriber(net.nodes[0], "s1", filter_text="red")
    at_most = net.subscriber(net.nodes[0], "s2", filter_text="red", mode=SubscriptionMode.AT_MOST_ONCE)
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1", b"blue", settled=True)
    publisher.send(b"2", b"red", settled=True)
    publisher.send(b"3", b"blue")
    publisher.send(b"4", b"red")
    assert exactly.deliveries == [b"2", b"4"]
    assert at_most.deliveries == [b"2", b"4"]
    exactly.accept(b"4")
    assert publisher.accepted == [3, 4]


def test_a_stock_publisher_whose_message_matches_nothing_is_reported_accepted() -> None:
    net = Net(filters=Words())
    net.subscriber(net.nodes[0], filter_text="red")
    publisher = net.stock_publisher(net.nodes[0])
    publisher.send(b"1", b"blue")
    assert publisher.outcomes == [(1, DeliveryOutcome.ACCEPTED)]


def test_the_operator_sees_the_filter() -> None:
    net = Net(filters=Words())
    net.subscriber(net.nodes[0], filter_text="red")
    tables = net.nodes[0].tables()
    assert isinstance(tables["subscriptions"], list)
    assert [row["filter"] for row in tables["subscriptions"]] == ["red"]


def test_the_cache_of_filters_has_a_bound_and_keeps_what_was_asked_for_last() -> None:
    words = Words()
    filters = MessageFilters(words)
    first = filters.of("0")
    assert filters.of("0") is first
    for number in range(3000):
        filters.of(str(number))
        filters.of("0")
    assert filters.of("0") is first
    assert len(filters._known) == 1024
    assert not filters.matches(first, b"xyz", 0)
