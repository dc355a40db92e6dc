"""Links that are detached while the peer's session window is closed (AMQP 1.0 part 2, 2.5.6)."""

from __future__ import annotations

import pytest

from oncewire.wire import (
    ACCEPTED,
    Attach,
    Detach,
    Disposition,
    DispositionReceived,
    Flow,
    LinkAttached,
    LinkState,
    Performative,
    Received,
    SenderLink,
    Source,
    Symbol,
    Target,
    Transfer,
)
from tests.support.engines import RawPeer, closed_window, one, only_transfers


def sender_at(peer: RawPeer, handle: int) -> SenderLink:
    link = peer.engine.sessions[0].links[handle]
    assert isinstance(link, SenderLink)
    return link


def reported_numbers(answers: list[Performative]) -> list[int | None]:
    return [transfer.delivery_id for transfer in only_transfers(answers)]


@pytest.mark.parametrize("by_peer", [True, False])
def test_a_detach_does_not_wait_for_the_window_and_what_is_unsent_is_dropped(by_peer: bool) -> None:
    """2.5.6: windows count transfers only. The answer waited for a window that the peer had no use for."""
    peer, link, ids = closed_window()
    link.settle(ids)
    link.flow(properties={Symbol("p"): 1})
    if not by_peer:
        link.detach(False)
    answers = peer.send(Detach(0, closed=False)) if by_peer else peer.read()
    assert [type(answer) for answer in answers] == [Detach]
    assert not peer.engine.sessions[0].is_queueing
    assert peer.send(Flow(1, 100, 0, 1)) == []


def test_a_close_that_its_owner_answers_later_does_not_wait_for_the_window_either() -> None:
    peer, link, _ = closed_window()
    assert peer.send(Detach(0, closed=True)) == []
    link.detach(True)
    assert [type(answer) for answer in peer.read()] == [Detach]


def test_a_window_that_closes_while_a_detach_waits_for_the_connection_lets_it_go() -> None:
    peer = RawPeer()
    peer.begin(incoming_window=2)
    link = peer.attach_as_receiver(0)
    peer.send(Flow(0, 2, 0, 1, 0, 0, 10))
    peer.engine.limit_output(1)
    for number in range(3):
        link.send(b"%d" % number, bytes(2000), state=Received(0, 0))
    link.detach(False)
    assert len(only_transfers(peer.read())) == 1
    peer.engine.limit_output(1 << 20)
    assert [type(answer) for answer in peer.read()] == [Transfer, Detach]


def test_numbers_of_deliveries_that_were_never_sent_are_not_left_out() -> None:
    """2.7.5: proton ends a session in which the next delivery has not the next number."""
    peer, link, _ = closed_window(others=1)
    other = sender_at(peer, 1)
    late = [other.send(b"o%d" % number, b"body") for number in range(2)]
    link.send(b"3", b"body")
    late.append(other.send(b"o2", b"body"))
    assert late == [3, 4, 6]
    peer.send(Detach(0, closed=False))
    answers = peer.send(Flow(1, 100, 0, 1))
    assert [transfer.delivery_tag for transfer in only_transfers(answers)] == [b"o0", b"o1", b"o2"]
    assert reported_numbers(answers) == [1, 2, 3]
    late.append(other.send(b"o3", b"body"))
    assert reported_numbers(peer.read()) == [4]
    peer.heard.clear()
    peer.send(Disposition(True, 1, 3, False, ACCEPTED))
    assert one(peer.heard, DispositionReceived).deliveries == [(3, b"o0"), (4, b"o1"), (6, b"o2")]
    other.settle(late)
    settled = [answer for answer in peer.read() if isinstance(answer, Disposition)]
    assert [(each.first, each.last) for each in settled] == [(1, 2), (3, 4)]
    assert not other.unsettled_count


def test_links_that_leave_one_after_the_other_leave_no_number_out() -> None:
    peer, _, _ = closed_window(others=3)
    links = [sender_at(peer, handle) for handle in range(4)]
    for number in range(20):
        links[number % 4].send(b"n%d" % number, b"body")
    for handle in (2, 0, 1):
        assert [type(answer) for answer in peer.send(Detach(handle, closed=False))] == [Detach]
    answers = peer.send(Flow(1, 100, 0, 1))
    assert [transfer.delivery_tag for transfer in only_transfers(answers)] == [b"n%d" % n for n in (3, 7, 11, 15, 19)]
    assert reported_numbers(answers) == [1, 2, 3, 4, 5]
    peer.heard.clear()
    peer.send(Disposition(True, 0, 0xFFFFFFFF, True, ACCEPTED))
    assert [tag for _, tag in one(peer.heard, DispositionReceived).deliveries] == [b"n3", b"n7", b"n11", b"n15", b"n19"]


def test_a_name_is_attached_again_at_once_where_its_link_has_left() -> None:
    """2.6.1: the new attach may not overtake the detach of the one before."""
    peer, link, _ = closed_window()
    answers = peer.send(Attach("link", 1, True, source=Source("t"), target=Target()))
    assert [type(answer) for answer in answers] == [Detach]
    one(peer.heard, LinkAttached).link.reply(source=Source("t"), target=Target())
    assert [type(answer) for answer in peer.read()] == [Attach]
    assert link.state is LinkState.DETACH_SENT


def test_a_handle_is_not_used_again_before_its_detach_is_written() -> None:
    peer = RawPeer()
    peer.begin()
    link = peer.attach_as_receiver(10)
    peer.engine.limit_output(0)
    link.send(b"0", bytes(2000), state=Received(0, 0))
    peer.send(Detach(0, closed=False))
    assert link.state is LinkState.DETACHED
    other = peer.engine.sessions[0].attach_sender("other", source=Source(), target=Target())
    assert other.handle == 1
    assert [type(answer) for answer in peer.read()] == [Attach]  # it waits for no other link's transfers
    peer.engine.limit_output(1 << 20)
    assert [type(answer) for answer in peer.read()] == [Transfer, Detach]
    assert peer.engine.sessions[0].attach_sender("third", source=Source(), target=Target()).handle == 0
