"""Who attaches too often waits, whoever else uses the same etcd does not; and nobody is refused for it."""

from __future__ import annotations

from oncewire.wire import Source, Target
from router.clients.attach_rate_core import (
    BURST_S,
    BUSY,
    BUSY_DELAY_S,
    CONNECTION_PART,
    FEW,
    LONGEST_S,
    MAX_USERS,
    AttachRates,
    Bucket,
)
from tests.router.processes import running_router
from tests.router.raw_client import RawClient

RATE = 100.0
BURST = int(RATE * BURST_S)


def own(now: float = 0.0) -> Bucket:
    return Bucket(RATE / CONNECTION_PART, now)


def test_a_burst_does_not_wait_and_what_is_more_waits_for_the_rate() -> None:
    rates, connections = AttachRates(), [own() for _ in range(CONNECTION_PART)]
    for number in range(BURST):
        rates.take("u", connections[number % CONNECTION_PART], RATE, 0.0)
    assert rates.delay("u", connections[0], 0, 0.0) == 0.0
    rates.take("u", connections[0], RATE, 0.0)
    assert rates.delay("u", connections[1], 0, 0.0) == 1 / RATE
    assert rates.delay("u", connections[0], 0, 0.0) == CONNECTION_PART / RATE
    assert rates.delay("u", connections[0], 0, 1.0) == 0.0
    assert rates.delayed == 2


def test_one_connection_has_a_part_of_what_its_user_may_do() -> None:
    rates, mine, another = AttachRates(), own(), own()
    for _ in range(BURST // CONNECTION_PART + 50):
        rates.take("u", mine, RATE, 0.0)
    assert rates.delay("u", mine, 0, 0.0) == LONGEST_S
    rates.take("u", another, RATE, 0.0)
    assert rates.delay("u", another, 0, 0.0) == 0.0


def test_users_do_not_wait_for_each_other() -> None:
    rates, mine, another = AttachRates(), own(), own()
    for _ in range(2 * BURST):
        rates.take("u", mine, RATE, 0.0)
    rates.take("v", another, RATE, 0.0)
    assert rates.delay("v", another, 0, 0.0) == 0.0


def test_while_etcd_is_busy_who_has_attached_a_lot_waits_and_a_newcomer_does_not() -> None:
    rates, mine, another = AttachRates(), own(), own()
    for _ in range(FEW + 1):
        rates.take("u", mine, RATE, 0.0)
    rates.take("u", another, RATE, 0.0)
    assert rates.delay("u", mine, BUSY + 1, 0.0) == BUSY_DELAY_S
    assert rates.delay("u", another, BUSY + 1, 0.0) == 0.0
    assert rates.delay("u", mine, BUSY, 0.0) == 0.0


def test_users_that_are_remembered_are_bounded() -> None:
    rates = AttachRates()
    mine = own()
    for _ in range(2 * BURST):
        rates.take("first", mine, RATE, 0.0)
    for number in range(MAX_USERS):
        rates.take(f"u{number}", own(), RATE, 0.0)
    assert rates.delay("first", own(), 0, 0.0) == 0.0


async def test_attaches_over_the_rate_are_all_answered_and_others_attach_meanwhile() -> None:
    async with running_router("--standalone", "--limits-attach-rate=10", "--log-level=warning") as router:
        flooding = await RawClient.connect(router.port)
        links = [
            flooding.session.attach_sender(f"p{number}", source=Source(), target=Target(address="orders"))
            for number in range(206)  # 200 are the burst of a connection, and two a second its rate
        ]
        flooding.flush()
        other = await RawClient.connect(router.port)
        assert (await other.publisher("orders")).link.is_attached
        for link in links:
            await flooding.attached(link)
        late = await flooding.subscriber("orders", "late")
        assert late.link.is_attached
