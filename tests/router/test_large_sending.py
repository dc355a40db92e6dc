"""Parts of a large message on their way to a subscriber, and what a publisher is notified of their size."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from delivery_records import Records
from delivery_records.model.effects import DeliverPart, PublisherReply
from delivery_records.model.inputs import LargeTaken
from delivery_records.model.parts import Part
from oncewire.transport.turn import Backlog, Turn
from oncewire.wire import (
    Attach,
    Begin,
    CreditError,
    DecodeError,
    DeliveryBegun,
    Flow,
    Header,
    Message,
    ReceiverLink,
    SenderLink,
    Source,
    Symbol,
    Target,
    Transfer,
    decode_message,
    encode,
    encode_message,
    read_annotations,
)
from router.clients.large_sending import Sending, Sendings
from router.clients.publisher_link import PublisherLink
from router.process.logs import EventLog
from router.records_driver import RecordsDriver
from tests.support.engines import RawPeer, frame, read_frames

LINK = 7
OPEN = 1 << 20


@dataclass
class Subscriber:
    """A subscriber's connection, with the session window as wide as a test wants."""

    window: int = OPEN
    peer: RawPeer = field(default_factory=lambda: RawPeer(max_frame_size=1024))
    is_behind: bool = False
    sendings: Sendings = field(default_factory=Sendings)

    def __post_init__(self) -> None:
        self.peer.open()
        self.peer.send(Begin(None, 0, OPEN, OPEN))
        self.link: SenderLink = self.peer.attach_as_receiver(2)
        self.sending = Sending(LINK, self.link)
        self.read = 0
        self.widen(self.window)

    def widen(self, frames: int) -> None:
        """The peer takes so many frames more than it has."""
        self.peer.engine.receive_data(frame(Flow(self.read, frames, 0, OPEN)), 0.0)

    def send(self, *parts: DeliverPart) -> None:
        """Hand parts to the engine."""
        for part in parts:
            self.sending.send(part, counts_repeats=True)
            self.sendings.add(self.sending)

    def transfers(self) -> list[tuple[Transfer, bytes]]:
        """What was written since."""
        written = read_frames(self.peer.engine.data_to_send())
        found = [(transfer, payload) for _, transfer, payload in written if isinstance(transfer, Transfer)]
        self.read += len(found)
        return found

    def taken(self) -> int:
        """What the record core gets at the end of the turn."""
        inputs = self.sendings.taken(is_behind=self.is_behind)
        for each in inputs:
            assert isinstance(each, LargeTaken)
            assert each.link == LINK
        return sum(each.size for each in inputs if isinstance(each, LargeTaken))


def first(data: bytes, **fields: object) -> DeliverPart:
    """The beginning of a delivery."""
    return DeliverPart(LINK, b"t", data, Part.FIRST, **fields)  # type: ignore[arg-type]


def more(data: bytes, part: Part = Part.MIDDLE) -> DeliverPart:
    """What follows."""
    return DeliverPart(LINK, b"t", data, part)


def test_parts_leave_as_one_delivery_and_are_taken_as_they_leave() -> None:
    to = Subscriber()
    to.send(first(b"one "), more(b"two "))
    assert [payload for _, payload in to.transfers()] == [b"one ", b"two "]
    assert to.taken() == 8
    assert (to.taken(), bool(to.sendings)) == (0, False)
    to.send(more(b"three", Part.LAST))
    ((last, _),) = to.transfers()
    assert (last.more, last.aborted) == (False, False)
    assert to.taken() == 5


def test_what_waits_for_the_session_window_is_not_taken() -> None:
    to = Subscriber()
    to.widen(1)
    to.send(first(b"a" * 100), more(b"b" * 2000), more(b"c" * 10, Part.LAST))
    to.transfers()
    assert to.taken() == 100
    assert to.sendings
    to.widen(1)
    ((_, payload),) = to.transfers()
    assert to.taken() == len(payload)
    to.widen(OPEN)
    rest = sum(len(payload) for _, payload in to.transfers())
    assert to.taken() == rest == 2110 - 100 - len(payload)
    assert not to.sendings


def test_nothing_is_taken_while_the_client_does_not_read() -> None:
    to = Subscriber()
    to.is_behind = True
    to.send(first(b"a" * 100), more(b"b" * 100))
    to.transfers()
    assert to.taken() == 0
    to.is_behind = False
    assert to.taken() == 200


def test_behind_an_abort_only_the_next_delivery_is_counted() -> None:
    to = Subscriber()
    to.widen(1)
    to.send(first(b"a" * 100), more(b"b" * 50), more(b"", Part.ABORT))
    to.transfers()
    assert to.taken() == 0
    to.widen(OPEN)
    ((last, _),) = to.transfers()
    assert last.aborted
    assert to.taken() == 0
    to.send(first(b"c" * 30), more(b"d" * 3, Part.LAST))
    to.transfers()
    assert to.taken() == 33


@pytest.mark.parametrize("is_stock", [False, True])
def test_what_was_aborted_cannot_be_read_by_a_stock_client_that_knows_no_aborts(is_stock: bool) -> None:
    to = Subscriber()
    to.sending = Sending(LINK, to.link, may_know_no_aborts=is_stock)
    message = encode_message(Message(body=b"body"))
    to.send(first(message), more(b"", Part.ABORT))
    come = b"".join(payload for _, payload in to.transfers())
    if is_stock:
        with pytest.raises(DecodeError):
            decode_message(come)
    else:
        assert come == message


def test_a_first_part_that_is_marked_counts_as_what_the_record_core_handed_over() -> None:
    to = Subscriber()
    message = encode_message(Message(body=b"body" * 100))
    cut = len(message) - 50
    to.send(first(message[:cut], redelivered=True, attempt=3, annotations={encode(Symbol("x-opt-a")): encode(1)}))
    to.send(more(message[cut:], Part.LAST))
    whole = b"".join(payload for _, payload in to.transfers())
    assert len(whole) > len(message)
    assert to.taken() == len(message)
    decoded = decode_message(whole)
    assert (decoded.body, decoded.header) == (b"body" * 100, Header(delivery_count=3))
    assert read_annotations(whole) == {"x-opt-a": 1, "x-opt-topic-redelivered": True}


def test_a_marked_first_part_that_waits_counts_as_not_taken_at_all() -> None:
    to = Subscriber()
    to.widen(0)
    message = encode_message(Message(body=b"body"))
    to.send(first(message, redelivered=True))
    assert to.taken() == 0
    assert to.sendings
    to.widen(OPEN)
    to.transfers()
    assert to.taken() == len(message)


def test_another_message_format_is_not_touched() -> None:
    to = Subscriber()
    to.send(first(b"\x00opaque", redelivered=True, message_format=7), more(b"", Part.LAST))
    (begun, payload), _ = to.transfers()
    assert (begun.message_format, payload) == (7, b"\x00opaque")


@pytest.mark.parametrize("settled", [False, True])
def test_the_first_part_carries_what_the_delivery_has(settled: bool) -> None:
    to = Subscriber()
    assert to.sending.send(first(b"a", settled=settled, resume=True), counts_repeats=False) == 0
    ((begun, _),) = to.transfers()
    assert (begun.delivery_tag, begun.settled, begun.resume, begun.more) == (b"t", settled, True, True)


def test_parts_of_a_delivery_that_has_not_begun_go_nowhere() -> None:
    to = Subscriber()
    to.send(more(b"a"), more(b"b", Part.LAST), more(b"", Part.ABORT))
    assert (to.transfers(), to.taken()) == ([], 0)


def test_without_credit_nothing_begins() -> None:
    to = Subscriber()
    for _ in range(2):
        to.send(first(b"a"), more(b"b", Part.LAST))
        to.transfers()
        assert to.taken() == 2
    with pytest.raises(CreditError):
        to.send(first(b"c"))
    assert (to.transfers(), to.taken()) == ([], 0)


# --- a publisher ------------------------------------------------------------------------------------------------------


@dataclass
class Owner:
    """The connection of a publisher."""

    driver: RecordsDriver
    kept_message_size: int = 3_000_000
    max_message_size: int = 1 << 40
    is_dirty: bool = True


async def replied(stream_above: int) -> tuple[RawPeer, ReceiverLink, Attach]:
    """A peer whose publisher was granted, its link, and the answer it got."""
    peer = RawPeer()
    peer.begin()
    peer.send(Attach("pub", 0, False, 0, 1, Source(), Target("t"), {}, initial_delivery_count=0))
    (link,) = peer.engine.sessions[0].links
    assert isinstance(link, ReceiverLink)
    records = Records(rid=1, node_id="r1", nonce=b"abcd")
    driver = RecordsDriver(records, EventLog("r1"), lambda _: True, lambda: None, Backlog(Turn()))
    shell = PublisherLink(Owner(driver), link)  # type: ignore[arg-type]
    shell.carry_out(PublisherReply(shell.number, {}, False, True, False, 60.0, "never", stream_above))
    (answer,) = [each for each in peer.read() if isinstance(each, Attach)]
    link.grant(10)
    peer.read()
    return peer, link, answer


async def test_the_reply_states_the_largest_message_of_all() -> None:
    peer, link, answer = await replied(1_500_000)
    assert (answer.max_message_size, link.stream_above) == (1 << 40, 1_500_000)
    for _ in range(2):
        peer.send(Transfer(0, 0, b"t", more=True), bytes(1_000_000))
    assert [type(event) for event in peer.heard if isinstance(event, DeliveryBegun)] == [DeliveryBegun]
