"""A message to thousands of subscriptions, or to costly filters, is thousands of units of a turn: counts, not times."""

from __future__ import annotations

import pytest

from oncewire.transport.paced_protocol import STEP_WORK, USUAL_WEIGHT, units_of_a_step
from oncewire.wire import DeliveryReceived
from router.clients.message_filters import AmqpFilters
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
