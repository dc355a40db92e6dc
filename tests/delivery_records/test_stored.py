"""What subscriptions store is kept apart from what they process, and a publisher may require the latter (I-3g)."""

from __future__ import annotations

from dataclasses import replace

from delivery_records.model import effects
from delivery_records.model.inputs import Share, UnsettledMap
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.view import Kind, SubscriptionRecord, split_path
from tests.delivery_records.harness import Net
from tests.delivery_records.links import PublisherLink, SubscriberLink
from topology.keys.attachments import decode_record, encode_record

ACCEPTED, RELEASED = DeliveryOutcome.ACCEPTED, DeliveryOutcome.RELEASED


def requiring(net: Net, processed: int, unsettled: UnsettledMap | None = None, *, waits: bool = False) -> PublisherLink:
    link = PublisherLink(net, net.nodes[0])
    link.attach(
        "p", unsettled={} if unsettled is None else unsettled, require=0, waits=waits, require_processed=processed
    )
    link.echo()
    return link


def words(publisher: PublisherLink) -> list[tuple[int, list[str], list[str]]]:
    """(how many are done with it, who has processed it, who stores it), each time that is reported."""
    found = publisher.all(effects.NotifyAcceptedBy)
    assert all(
        (len(each.processed.names), len(each.stored.names)) == (each.processed.total, each.stored.total)
        for each in found
    )
    return [(each.count, list(each.processed.names), list(each.stored.names)) for each in found]


def outcomes(publisher: PublisherLink) -> list[DeliveryOutcome]:
    return [outcome for _, outcome in publisher.outcomes]


def test_who_stores_a_message_and_who_has_processed_it_are_named_apart() -> None:
    net = Net(2)
    journal = net.subscriber(net.nodes[1], "edge", stores=True)
    worker = net.subscriber(net.nodes[0], "worker")
    publisher = requiring(net, 1)
    publisher.send(b"1")
    worker.accept(b"1")
    assert publisher.outcomes == []
    journal.accept(b"1")
    assert outcomes(publisher) == [ACCEPTED]
    assert words(publisher) == [(2, ["worker/link"], ["edge/link"])]


def test_a_message_that_would_only_be_stored_is_sent_to_nobody_where_it_must_be_processed() -> None:
    net = Net()
    journal = net.subscriber(net.nodes[0], "edge", stores=True)
    publisher = requiring(net, 1)
    publisher.send(b"1")
    assert outcomes(publisher) == [RELEASED]
    assert journal.deliveries == []
    publisher.settle(b"1")
    worker = net.subscriber(net.nodes[0], "worker")
    publisher.send(b"2")
    journal.accept(b"2")
    worker.accept(b"2")
    assert outcomes(publisher) == [RELEASED, ACCEPTED]


def test_one_that_has_ended_counts_as_what_it_said() -> None:
    net = Net()
    journal = net.subscriber(net.nodes[0], "edge", stores=True)
    worker = net.subscriber(net.nodes[0], "worker")
    publisher = requiring(net, 0)
    publisher.send(b"1")
    journal.accept(b"1")
    net.delete_subscription("edge")
    worker.accept(b"1")
    assert words(publisher) == [(2, ["worker/link"], ["edge/link"])]


def test_a_publisher_that_waits_gets_no_outcome_before_somebody_processes_its_message() -> None:
    net = Net()
    journal = net.subscriber(net.nodes[0], "edge", stores=True)
    worker = net.subscriber(net.nodes[0], "worker")
    publisher = requiring(net, 1, waits=True)
    publisher.send(b"1")
    worker.detach(closed=True)
    journal.accept(b"1")
    assert publisher.outcomes == []
    assert not publisher.all(effects.DetachLink)
    second = net.subscriber(net.nodes[0], "second")
    assert publisher.last(effects.DetachLink).condition == "amqp:link:detach-forced"
    again = requiring(net, 1, {b"1": None}, waits=True)
    again.send(b"1")
    second.accept(b"1")
    assert outcomes(again) == [ACCEPTED]
    assert words(again) == [(2, ["second/link"], ["edge/link"])]


def test_a_subscription_that_has_stored_cannot_say_later_that_it_had_processed() -> None:
    net = Net()
    journal = net.subscriber(net.nodes[0], "edge", stores=True)
    other = net.subscriber(net.nodes[0], "other")
    publisher = requiring(net, 0)
    publisher.send(b"1")
    journal.accept(b"1")
    journal.drop()
    net.subscriber(net.nodes[0], "edge", unsettled={journal.network_tag(b"1"): ACCEPTED})
    other.accept(b"1")
    assert words(publisher) == [(2, ["other/link"], ["edge/link"])]


def member(net: Net, name: str, *, stores: bool = False) -> SubscriberLink:
    return net.subscriber(net.nodes[0], name, share=Share("group", is_global=True), stores=stores)


def test_a_shared_subscription_stores_once_one_of_its_members_does() -> None:
    net = Net()
    worker = member(net, "worker")
    publisher = requiring(net, 1)
    publisher.send(b"1")
    worker.accept(b"1")
    assert words(publisher) == [(1, ["*/group"], [])]
    publisher.settle(b"1")
    member(net, "edge", stores=True)
    publisher.send(b"2")
    assert outcomes(publisher) == [ACCEPTED, RELEASED]


def test_a_key_of_a_router_that_does_not_know_it_says_neither() -> None:
    record = SubscriptionRecord("s", "link", "orders", 1, "n", stores=True)
    path = split_path("subs/" + "0" * 40)
    assert decode_record(*path, encode_record(record)) == record
    older = encode_record(replace(record, stores=None)).replace(b',"stores":null', b"")
    assert b"stores" not in older
    found = decode_record(Kind.SUBSCRIPTION, path[1], older)
    assert isinstance(found, SubscriptionRecord)
    assert found.stores is None
