"""The 14 delivery-tag cases of link recovery (AMQP 1.0 section 2.6.13), carried over two engines."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from oncewire.wire import (
    ACCEPTED,
    RELEASED,
    DeliveryReceived,
    DeliveryState,
    DispositionReceived,
    LinkAttached,
    Modified,
    Received,
    ReceiverLink,
    Rejected,
    SenderLink,
    Source,
    Target,
    UnsettledMap,
    encode_data_message,
    unsettled_map_bound,
)
from tests.support.engines import Pipe, joined, one, only

EARLY, LATE = Received(0, 10), Received(0, 20)
MESSAGE = encode_data_message(b"a body of some length, so that it can be cut")
ABSENT = "absent"
"""That end's map has no entry; None is an entry without a state."""


@dataclass(frozen=True)
class Sent:
    """What the source of the link sends about one delivery."""

    payload: bytes = b""
    state: DeliveryState | None = None
    settled: bool = False
    resume: bool = True
    aborted: bool = False


RESENT = Sent(MESSAGE, resume=False)
ABORTED = Sent(settled=True, aborted=True)

# (state at the source, state at the target, what the source sends), in the order of the specification's example.
CASES: tuple[tuple[DeliveryState | str | None, DeliveryState | str | None, Sent | None], ...] = (
    (None, ABSENT, RESENT),
    (None, EARLY, Sent(MESSAGE[10:])),
    (None, ACCEPTED, Sent(state=ACCEPTED, settled=True)),
    (None, None, Sent(MESSAGE)),
    (EARLY, ABSENT, RESENT),
    (EARLY, LATE, Sent(MESSAGE[20:])),
    (LATE, EARLY, ABORTED),
    (EARLY, Rejected(), Sent(state=Rejected(), settled=True)),
    (EARLY, None, ABORTED),
    (ACCEPTED, ABSENT, None),
    (RELEASED, EARLY, ABORTED),
    (ACCEPTED, ACCEPTED, Sent(state=ACCEPTED, settled=True)),
    (RELEASED, ACCEPTED, Sent(state=RELEASED)),
    (RELEASED, None, ABORTED),
)
SENT = {b"tag-%d" % number: sent for number, (_, _, sent) in enumerate(CASES, 1)}


def maps() -> tuple[UnsettledMap, UnsettledMap]:
    """The map of the source and the map of the target."""
    source: UnsettledMap = {}
    target: UnsettledMap = {b"only-target": ACCEPTED}
    for tag, (ours, theirs, _) in zip(SENT, CASES, strict=True):
        if not isinstance(ours, str):
            source[tag] = ours
        if not isinstance(theirs, str):
            target[tag] = theirs
    return source, target


def reattached(source_is_client: bool, pipe: Pipe) -> tuple[SenderLink, ReceiverLink]:
    """Two engines with a link that was suspended and attached again, both maps exchanged."""
    first = pipe.link_to_server() if source_is_client else pipe.link_to_client()
    first[0].detach(False)
    pipe.forget()
    source, target = maps()
    session = pipe.client.sessions[0]
    termini = (Source("t"), Target("t"))
    if source_is_client:
        session.attach_sender("link", source=termini[0], target=termini[1], unsettled=source)
        theirs = one(pipe.hear_server(), LinkAttached).link
        theirs.reply(source=termini[0], target=termini[1], unsettled=target)
        ours = one(pipe.hear_client(), LinkAttached).link
        pair = (ours, theirs)
    else:
        session.attach_receiver("link", source=termini[0], target=termini[1], unsettled=target)
        theirs = one(pipe.hear_server(), LinkAttached).link
        theirs.reply(source=termini[0], target=termini[1], unsettled=source)
        ours = one(pipe.hear_client(), LinkAttached).link
        pair = (theirs, ours)
    sender, receiver = pair
    assert isinstance(sender, SenderLink)
    assert isinstance(receiver, ReceiverLink)
    receiver.grant(100)
    pipe.forget()
    return sender, receiver


def exchanged(link: SenderLink | ReceiverLink) -> tuple[UnsettledMap, UnsettledMap]:
    """Our map and the peer's, as they were on the wire."""
    assert link.local_attach is not None
    assert link.remote_attach is not None
    ours, theirs = link.local_attach.unsettled, link.remote_attach.unsettled
    assert ours is not None
    assert theirs is not None
    return ours, theirs


@pytest.mark.parametrize("frame_size", [4096, 700])
@pytest.mark.parametrize("source_is_client", [True, False])
def test_all_cases_at_once_leave_both_ends_with_nothing_unsettled(source_is_client: bool, frame_size: int) -> None:
    pipe = joined(both={"max_frame_size": frame_size})
    sender, receiver = reattached(source_is_client, pipe)
    source, target = maps()
    assert exchanged(sender) == (source, target)
    assert exchanged(receiver) == (target, source)
    for tag, sent in SENT.items():
        if sent is not None:
            sender.send(
                tag, sent.payload, resume=sent.resume, settled=sent.settled, aborted=sent.aborted, state=sent.state
            )
    heard = {
        event.tag: event
        for event in only(pipe.hear_server() if source_is_client else pipe.hear_client(), DeliveryReceived)
    }
    assert {
        tag: Sent(bytes(event.payload), event.state, event.settled, event.resume, event.aborted)
        for tag, event in heard.items()
    } == {tag: sent for tag, sent in SENT.items() if sent is not None}
    receiver.dispose([event.delivery_id for event in heard.values() if not event.settled], ACCEPTED, False)
    reported = only(pipe.hear_client() if source_is_client else pipe.hear_server(), DispositionReceived)
    sender.settle([number for event in reported for number, _ in event.deliveries])
    pipe.run()
    assert not sender.session.sent_unsettled
    assert not receiver.session.received_unsettled


def test_a_link_that_was_never_resumed_has_no_map() -> None:
    for link in Pipe().link_to_server():
        assert link.local_attach is not None
        assert link.local_attach.unsettled is None


@pytest.mark.parametrize("frame_size", [512, 600, 4096, 1 << 20])
def test_a_bounded_map_fits_the_frame_it_is_made_for(frame_size: int) -> None:
    states: list[DeliveryState | None] = [None, ACCEPTED, Rejected(), RELEASED, Modified()]
    kept: UnsettledMap = {b"%032d" % number: states[number % 5] for number in range(unsettled_map_bound(frame_size))}
    pipe = joined(both={"max_frame_size": frame_size})
    pipe.client.open()
    session = pipe.client.begin()
    pipe.run()
    address = "a topic with a name of some length"
    session.attach_receiver(
        "a link with a name of some length",
        source=Source(address),
        target=Target(address),
        unsettled=kept,
        incomplete_unsettled=True,
        desired_capabilities=["topic-exactly-once"],
    )
    remote = one(pipe.hear_server(), LinkAttached).link.remote_attach
    assert remote is not None
    assert remote.unsettled == kept
    assert remote.incomplete_unsettled
