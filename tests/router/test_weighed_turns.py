"""A message to thousands of subscriptions, or to costly filters, is thousands of units of a turn: counts, not times."""

from __future__ import annotations

import asyncio
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from chaos.sources import source_of
from oncewire.transport.paced_protocol import STEP_WORK, USUAL_WEIGHT, PacedProtocol, units_of_a_step
from oncewire.transport.turn import Backlog, Turn
from oncewire.wire import Connection, DeliveryReceived
from router.clients.message_filters import AmqpFilters
from tests.client.shell_helpers import LONG
from tests.delivery_records.harness import Net
from tests.filters.test_filter_budget import asked
from tests.support.engines import Pipe

MOST = STEP_WORK * USUAL_WEIGHT
"""Deliveries between two looks at the clock."""
MESSAGES = 300


@pytest.mark.parametrize("weight", [0, 1, 16, 17, 100, 3_600, 4_096, 10_000])
def test_a_step_leads_to_a_bounded_number_of_deliveries_unless_one_message_does(weight: int) -> None:
    units = units_of_a_step(weight)
    assert 1 <= units <= STEP_WORK
    assert units * weight <= MOST or units == 1
    assert units == STEP_WORK or weight > USUAL_WEIGHT, "what is usual costs nothing more"


def test_a_message_weighs_what_it_is_sent_to() -> None:
    net = Net(2)
    records = net.nodes[0].core
    publisher = net.publisher(net.nodes[0])
    assert records.weigh([publisher.number], 1) == 0
    for number in range(20):
        before = records.weights_version()
        net.subscriber(net.nodes[0], f"s{number}")
        assert records.weights_version() > before, "connections look again"
    assert records.weigh([publisher.number], 1) == 20
    for number in range(20):
        net.subscriber(net.nodes[1], f"far{number}")
    assert records.weigh([publisher.number], 1) == 21, "one message to the other router"
    other = net.publisher(net.nodes[0], "p2", topic="another")
    assert records.weigh([other.number], 1) == 0


def test_a_publisher_weighs_from_its_activation_on() -> None:
    net = Net()
    for number in range(20):
        net.subscriber(net.nodes[0], f"s{number}")
    records = net.nodes[0].core
    before = records.weights_version()
    publisher = net.publisher(net.nodes[0])
    assert records.weights_version() > before
    assert records.weigh([publisher.number], 1) == 20


def test_filters_that_read_strings_weigh_as_many_deliveries() -> None:
    net = Net(filters=AmqpFilters())
    publisher = net.publisher(net.nodes[0])
    records = net.nodes[0].core
    net.subscriber(net.nodes[0], "plain", filter_text=asked("a = 1 AND b IN ('x')"))
    assert records.weigh([publisher.number], 1) == 1
    for number, selector in enumerate(["a LIKE '%b_'", "JMSMessageID = 'x'", "NOT (a = 1 OR a + 1 = 2 OR b LIKE 'x')"]):
        net.subscriber(net.nodes[0], f"s{number}", filter_text=asked(selector))
        weight = records.weigh([publisher.number], 1)
        assert weight is not None
        assert units_of_a_step(weight) * (number + 1) <= USUAL_WEIGHT, "some milliseconds each"


def test_of_many_publishers_a_few_are_looked_at_in_each_step() -> None:
    net = Net()
    links = [net.publisher(net.nodes[0], f"p{number}").number for number in range(10)]
    net.subscriber(net.nodes[0], "s")
    records = net.nodes[0].core
    records.turn.plan_version += 1  # as with a subscription that comes, before anything looks at them
    assert [records.weigh(links, 4) for _ in range(4)] == [None, None, 1, 1]


@pytest.mark.parametrize("weight", [1, 400, 3_600])
def test_what_was_read_is_carried_out_in_steps_of_so_few_messages(weight: int) -> None:
    pipe = Pipe()
    sender, _ = pipe.link_to_server("link", credit=MESSAGES)
    for number in range(MESSAGES):
        sender.send(b"%d" % number, b"m")
    data, steps, is_left = pipe.client.data_to_send(), [], True
    while is_left:
        is_left = pipe.server.receive_data(data, pipe.now, units_of_a_step(weight))
        steps.append(sum(isinstance(event, DeliveryReceived) for event in pipe.server.events()))
        data = b""
        assert len(steps) <= 2 * MESSAGES, "it says for ever that more is left"
    assert sum(steps) == MESSAGES
    assert max(steps) * weight <= MOST


if TYPE_CHECKING:
    Paced = PacedProtocol
else:  # nothing inherits from the compiled class
    own = ModuleType("paced_protocol_from_its_source")
    exec(source_of(PacedProtocol.__module__).read_text(encoding="utf-8"), own.__dict__)
    Paced = own.PacedProtocol


class Held(Paced):
    """A connection whose reads are carried out message by message, and wait while it is held up."""

    output_limit_bytes = 1 << 20

    def __init__(self, engine: Connection) -> None:
        turn = Turn(lambda: 0.0)
        self.backlog = Backlog(turn)
        super().__init__(engine, turn, lambda: 0.0, self.backlog)
        self.is_held = True
        self.is_connected = asyncio.Event()
        self.seen: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.is_connected.set()

    def may_carry_out(self, now: float) -> bool:
        return True

    def step_work(self) -> int:
        return 1

    def is_held_up(self) -> bool:
        return self.is_held

    def process_events(self) -> None:
        self.seen += [event.payload for event in self.engine.events() if isinstance(event, DeliveryReceived)]

    def on_fault(self, error: Exception, doing: str) -> None:
        raise error


async def test_what_leads_to_thousands_waits_while_it_is_held_up_and_goes_on_in_order() -> None:
    pipe = Pipe()
    sender, _ = pipe.link_to_server("link", credit=MESSAGES)
    sent = [b"%d" % number for number in range(MESSAGES)]
    for each in sent:
        sender.send(each, each)
    held = Held(pipe.server)
    server = await asyncio.get_running_loop().create_server(lambda: held, "127.0.0.1", 0)
    async with server:
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        await held.is_connected.wait()
        held.backlog.append(held)  # somebody waits: what is read now waits, too
        writer.write(pipe.client.data_to_send())
        async with asyncio.timeout(LONG):
            while not held.bytes_in:  # noqa: ASYNC110  (of turns of the loop nobody is notified)
                await asyncio.sleep(0)
            for _ in range(20):
                await asyncio.sleep(0)
            assert not held.seen
            held.is_held = False
            while len(held.seen) < MESSAGES:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert held.seen == sent
        writer.close()
