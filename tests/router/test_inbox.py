"""What neighbours sent leads to so many deliveries in one piece, in the order of the reads: counts, not times."""

from __future__ import annotations

import asyncio

from delivery_records.model import effects
from delivery_records.model.inputs import Input, PathsChanged
from delivery_records.records import Records
from oncewire.transport.turn import Backlog, Turn
from router.clients.message_filters import AmqpFilters
from router.peers.inbox import MOST, Inbox
from tests.client.shell_helpers import LONG
from tests.delivery_records.harness import Net
from tests.delivery_records.nodes import Node
from tests.filters.test_filter_budget import asked


class Driven:
    """A router of the harness, and how many deliveries each piece of work led to."""

    def __init__(self, net: Net, node: Node) -> None:
        self.net, self.node = net, node
        self.is_behind = False
        self.pieces: list[list[Input]] = []
        self.deliveries: list[int] = []

    @property
    def records(self) -> Records:
        return self.node.core

    def submit(self, inputs: list[Input]) -> None:
        before = len(self.node.all(effects.Deliver))
        self.net.turn(self.node, *inputs)
        self.pieces.append(inputs)
        self.deliveries.append(len(self.node.all(effects.Deliver)) - before)


def frames_of(
    messages: int, subscriptions: int, filter_text: str = "", *, settles: bool = False
) -> tuple[Driven, list[Input], list[int]]:
    """A router with these subscriptions, and what another one has sent to it: all of it was read at once."""
    net = Net(2, filters=AmqpFilters())
    near, far = net.nodes
    links = []
    for number in range(subscriptions):
        link = net.subscriber(near, f"s{number}", filter_text=filter_text)
        link.flow(1000)
        links.append(link.number)
    publisher = net.publisher(far)
    net.held.add((1, 0))
    for number in range(messages):
        publisher.send(b"%04d" % number)
    if settles:
        publisher.settle(*(b"%04d" % number for number in range(messages)))
    return Driven(net, near), [*net.frames[far.rid, near.rid]], links


async def until_all_is_handed_over(driven: Driven, count: int) -> None:
    async with asyncio.timeout(LONG):
        while sum(map(len, driven.pieces)) < count:  # noqa: ASYNC110  (of turns of the loop nobody is notified)
            await asyncio.sleep(0)


async def test_a_read_of_many_messages_for_many_subscriptions_is_several_pieces() -> None:
    messages, subscriptions = 60, 300
    driven, read, links = frames_of(messages, subscriptions)
    inbox = Inbox(driven, Backlog(Turn()))
    inbox.put(read)
    assert len(driven.pieces) == 1, "others have their turns before the rest"
    await until_all_is_handed_over(driven, len(read))
    assert max(driven.deliveries) <= MOST
    assert sum(driven.deliveries) == messages * subscriptions
    expected = [b"%04d" % number for number in range(messages)]
    for link in (links[0], links[-1]):
        assert [each.message for each in driven.node.all(effects.Deliver) if each.link == link] == expected


async def test_what_is_read_later_or_found_out_comes_behind_what_waits() -> None:
    driven, read, _ = frames_of(60, 300)
    inbox = Inbox(driven, Backlog(Turn()))
    inbox.put(read[:-1])
    paths = PathsChanged(frozenset(), frozenset())
    inbox.put([paths])
    inbox.put(read[-1:])
    await until_all_is_handed_over(driven, len(read) + 1)
    assert [each for piece in driven.pieces for each in piece] == [*read[:-1], paths, read[-1]]


async def test_usual_reads_are_one_piece_and_wait_for_nothing() -> None:
    driven, read, _ = frames_of(60, 4)
    Inbox(driven, Backlog(Turn())).put(read)
    assert driven.pieces == [read]


async def test_frames_that_lead_to_little_are_one_piece_however_many_subscriptions_there_are() -> None:
    driven, read, _ = frames_of(1, 400)
    acks: list[Input] = [PathsChanged(frozenset(), frozenset())] * 100
    Inbox(driven, Backlog(Turn())).put([*acks, *read])
    assert len(driven.pieces) == 1


async def test_costly_filters_weigh_as_many_deliveries() -> None:
    driven, read, _ = frames_of(60, 20, asked("a LIKE '%b_'"))
    inbox = Inbox(driven, Backlog(Turn()))
    inbox.put(read)
    await until_all_is_handed_over(driven, len(read))
    assert max(map(len, driven.pieces)) == 1, "20 of 256 each are more than a step"


async def test_what_leads_to_much_waits_while_deliveries_of_what_came_before_do() -> None:
    driven, read, _ = frames_of(20, 300)
    driven.is_behind = True
    Inbox(driven, Backlog(Turn())).put(read)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not driven.pieces
    driven.is_behind = False
    await until_all_is_handed_over(driven, len(read))


async def test_what_waits_is_lost_with_the_incarnation() -> None:
    driven, read, _ = frames_of(60, 300)
    inbox = Inbox(driven, Backlog(Turn()))
    inbox.put(read)
    inbox.clear()
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(driven.pieces) == 1
