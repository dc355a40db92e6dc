"""What an attach reply or a confirmation states holds: one test for each value, for subscribers and for publishers."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from oncewire.wire import (
    ACCEPTED,
    RELEASED,
    DeliveryState,
    Modified,
    ReceiverSettleMode,
    Rejected,
    SenderSettleMode,
    Source,
    Symbol,
    Target,
    TerminusDurability,
    ULong,
    decode_message,
    read_annotations,
)
from tests.router.processes import RouterProcess, running_router
from tests.router.raw_client import EXACTLY_ONCE, RawClient, RawSubscriber, until

HOUR = 3600
PROVISIONAL = 60
CAP = 86_400
RESUME = Symbol("x-opt-topic-resume")


pytestmark = pytest.mark.asyncio(loop_scope="module")
_numbers = itertools.count(1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def router() -> AsyncIterator[RouterProcess]:
    """One for all tests; each uses names of its own."""
    async with running_router("--standalone") as process:
        yield process


@pytest.fixture
def own() -> str:
    """A name for the container and the topic of one test, that no other test uses."""
    return f"own{next(_numbers)}"


async def row_of(router: RouterProcess, kind: str, name: str) -> dict[str, Any] | None:
    """What the router's own tables say of an attachment."""
    rows = (await router.get(f"/api/v1/{kind}"))[1]["items"]
    return next((row for row in rows if row["name"] == name), None)


async def lasting(router: RouterProcess, kind: str, name: str) -> float:
    """Seconds until a detached attachment ends."""

    def is_detached(row: dict[str, Any] | None) -> bool:
        return row is None or row["state"] in ("detached", "suspended")

    row = await until(lambda: row_of(router, kind, name), is_detached)
    assert row is not None
    found: float = row["expires_in_s"]
    return found


async def attach(client: RawClient, source: Source, **options: Any) -> RawSubscriber:
    """A subscriber's attach with this source; credit follows the reply."""
    link = client.session.attach_receiver("s", source=source, target=Target(), **options)
    client.flush()
    subscriber = RawSubscriber(client, link, await client.attached(link))
    link.grant(100)
    client.flush()
    return subscriber


# ---------------------------------------------------------------------- a subscriber's time-out and expiry policy


async def test_a_confirmed_subscription_has_the_stated_time_before_its_first_message(
    router: RouterProcess, own: str
) -> None:
    client = await RawClient.connect(router.port, own)
    subscriber = await client.subscriber(own, "s", timeout=HOUR)
    assert subscriber.reply.source is not None
    assert subscriber.reply.source.timeout == PROVISIONAL
    assert subscriber.granted[Symbol("x-opt-topic-timeout")] == HOUR
    assert subscriber.granted[Symbol("x-opt-topic-expiry-policy")] == "link-detach"
    client.cut()
    assert await lasting(router, "subscriptions", f"{own}/s") > HOUR - 60
    again = await RawClient.connect(router.port, own)
    subscriber = await again.subscriber(own, "s", timeout=HOUR)
    assert subscriber.reply.source is not None
    assert subscriber.reply.source.timeout == HOUR, "it holds when the reply is written"


async def test_a_stock_client_gets_the_timeout_it_really_has(router: RouterProcess, own: str) -> None:
    client = await RawClient.connect(router.port, own)
    source = Source(address=own, durable=TerminusDurability.UNSETTLED_STATE, expiry_policy=Symbol("never"))
    subscriber = await attach(client, source)
    reported = subscriber.reply.source
    assert reported is not None
    assert (reported.timeout, reported.expiry_policy) == (PROVISIONAL, "link-detach")
    client.cut()
    left = await lasting(router, "subscriptions", f"{own}/s")
    assert PROVISIONAL - 30 < left <= PROVISIONAL


async def test_never_is_stated_as_what_it_is(router: RouterProcess, own: str) -> None:
    client = await RawClient.connect(router.port, own)
    source = Source(address=own, expiry_policy=Symbol("never"))
    link = client.session.attach_receiver(
        "s", source=source, target=Target(), unsettled={}, desired_capabilities=[EXACTLY_ONCE]
    )
    client.flush()
    reported = (await client.attached(link)).source
    assert reported is not None
    assert (reported.timeout, reported.expiry_policy) == (PROVISIONAL, "link-detach")
    echo = await client.flow_with(link, "x-opt-topic-echo")
    link.flow({Symbol("x-opt-topic-echo"): ULong(echo)})
    client.flush()
    assert await client.flow_with(link, "x-opt-topic-timeout") == CAP
    client.cut()
    assert await lasting(router, "subscriptions", f"{own}/s") > CAP - 60


async def test_a_subscription_with_session_end_is_kept_for_its_session_and_no_longer(
    router: RouterProcess, own: str
) -> None:
    client = await RawClient.connect(router.port, own)
    subscriber = await attach(client, Source(address=own))
    assert subscriber.reply.source is not None
    assert subscriber.reply.source.expiry_policy == "session-end"
    assert subscriber.reply.source.timeout == 0
    subscriber.link.detach(False)
    client.flush()
    await client.detached(subscriber.link)
    publisher = await (await RawClient.connect(router.port)).publisher(own)
    publisher.send(b"1", b"one")
    row = await row_of(router, "subscriptions", f"{own}/s")
    assert row is not None
    assert (row["state"], row["expires_in_s"]) == ("detached", None)
    second = await attach(client, Source(address=own))
    assert (second.reply.properties or {})[RESUME] == "resumed"
    assert decode_message((await second.delivery()).payload).body == b"one"
    second.link.detach(False)
    client.flush()
    await client.detached(second.link)
    client.session.end()
    client.flush()
    assert (await publisher.outcome(b"1")).state == ACCEPTED, "nobody is owed it any more"
    assert await row_of(router, "subscriptions", f"{own}/s") is None


# ---------------------------------------------------------------------- the other values of a subscriber's reply


async def test_the_reply_names_the_address_and_no_filter_that_is_not_applied(router: RouterProcess, own: str) -> None:
    client = await RawClient.connect(router.port)
    reported = (await attach(client, Source(address=f"{own}.*"))).reply.source
    assert reported is not None
    assert (reported.address, reported.filter, reported.dynamic) == (f"{own}.*", None, False)
    assert reported.distribution_mode == "copy"


@pytest.mark.parametrize("durable", TerminusDurability)
async def test_the_durable_of_a_terminus_comes_back_as_it_was_asked_for(
    router: RouterProcess, own: str, durable: TerminusDurability
) -> None:
    client = await RawClient.connect(router.port)
    source = (await attach(client, Source(address=own, durable=durable))).reply.source
    link = client.session.attach_sender("p", source=Source(), target=Target(address=own, durable=durable))
    client.flush()
    target = (await client.attached(link)).target
    assert source is not None
    assert isinstance(target, Target)
    assert (source.durable, target.durable) == (durable, durable)


STATES: dict[str, DeliveryState] = {
    "amqp:accepted:list": ACCEPTED,
    "amqp:rejected:list": Rejected(),
    "amqp:released:list": RELEASED,
    "amqp:modified:list": Modified(delivery_failed=True),
}


@pytest.mark.parametrize("outcome", STATES)
async def test_each_stated_outcome_does_what_amqp_says(router: RouterProcess, own: str, outcome: str) -> None:
    client = await RawClient.connect(router.port)
    subscriber = await client.subscriber(own, "s")
    assert subscriber.reply.source is not None
    assert set(subscriber.reply.source.outcomes) == set(STATES)
    publisher = await client.publisher(own)
    publisher.send(b"1", b"one")
    first = await subscriber.delivery()
    subscriber.link.dispose([first.delivery_id], STATES[outcome], False)
    client.flush()
    if outcome in ("amqp:accepted:list", "amqp:rejected:list"):
        assert (await publisher.outcome(b"1")).state == ACCEPTED
    else:
        assert (await subscriber.delivery()).tag == first.tag


@pytest.mark.parametrize("state", [ACCEPTED, RELEASED, Modified(message_annotations={Symbol("x-opt-why"): "late"})])
async def test_the_stated_default_outcome_is_that_of_what_is_settled_without_one(
    router: RouterProcess, own: str, state: DeliveryState
) -> None:
    client = await RawClient.connect(router.port)
    subscriber = await attach(client, Source(address=own, default_outcome=state))
    assert subscriber.reply.source is not None
    assert subscriber.reply.source.default_outcome == state
    publisher = await client.publisher(own)
    publisher.send(b"1", b"one")
    first = await subscriber.delivery()
    subscriber.link.dispose([first.delivery_id], None, True)
    client.flush()
    if state == ACCEPTED:
        assert (await publisher.outcome(b"1")).state == ACCEPTED
        return
    again = await subscriber.delivery()
    assert decode_message(again.payload).body == b"one"
    if isinstance(state, Modified):
        assert read_annotations(again.payload)[Symbol("x-opt-why")] == "late"


@pytest.mark.parametrize(
    "options",
    [{"rcv_settle_mode": ReceiverSettleMode.FIRST, "unsettled": {}}, {"unsettled": None}],
    ids=["settles first", "keeps no map"],
)
async def test_the_capability_is_stated_only_where_it_is_granted(
    router: RouterProcess, own: str, options: dict[str, Any]
) -> None:
    client = await RawClient.connect(router.port)
    subscriber = await attach(client, Source(address=own), desired_capabilities=[EXACTLY_ONCE], **options)
    assert subscriber.reply.source is not None
    assert EXACTLY_ONCE not in (*subscriber.reply.offered_capabilities, *subscriber.reply.source.capabilities)
    granted = await client.subscriber(own, "granted")
    assert granted.reply.source is not None
    assert EXACTLY_ONCE in granted.reply.offered_capabilities
    assert EXACTLY_ONCE in granted.reply.source.capabilities
    assert granted.incarnation, "and so it is confirmed by a flow"


@pytest.mark.parametrize(
    ("asked", "stated"),
    [
        (SenderSettleMode.SETTLED, SenderSettleMode.SETTLED),
        (SenderSettleMode.UNSETTLED, SenderSettleMode.UNSETTLED),
        (SenderSettleMode.MIXED, SenderSettleMode.MIXED),
    ],
)
async def test_deliveries_are_settled_as_the_settle_modes_state(
    router: RouterProcess, own: str, asked: int, stated: int
) -> None:
    client = await RawClient.connect(router.port)
    subscriber = await attach(client, Source(address=own), snd_settle_mode=asked)
    assert subscriber.reply.snd_settle_mode == stated
    assert subscriber.reply.rcv_settle_mode == ReceiverSettleMode.SECOND
    publisher = await client.publisher(own)
    publisher.send(b"1", b"one")
    first = await subscriber.delivery()
    assert first.settled == (stated == SenderSettleMode.SETTLED)
    publisher.send(b"2", b"two", settled=True)
    second = await subscriber.delivery()
    assert second.settled == (stated != SenderSettleMode.UNSETTLED), "2.8.2: unsettled is what all are at first"
    if not second.settled:
        await subscriber.settled(second.tag)  # nobody waits for its outcome
    if not first.settled:
        subscriber.accept(first)  # second: the router settles when it has the outcome and its publisher settled
        delivery_id = (await publisher.outcome(b"1")).deliveries[0][0]
        publisher.settle(delivery_id)
        await subscriber.settled(first.tag)


@pytest.mark.parametrize("scheme", ["", "topic://"])
async def test_the_reply_has_the_address_as_the_client_wrote_it(router: RouterProcess, own: str, scheme: str) -> None:
    client = await RawClient.connect(router.port, own)
    subscriber = await attach(client, Source(address=scheme + own))
    assert subscriber.reply.source is not None
    assert subscriber.reply.source.address == scheme + own
    publisher = await client.publisher(own)
    publisher.send(b"1", b"one")
    await subscriber.delivery()


async def test_a_subscriber_with_a_map_gets_what_was_pre_settled_settled_and_is_reported_mixed(
    router: RouterProcess, own: str
) -> None:
    client = await RawClient.connect(router.port, own)
    subscriber = await client.subscriber(own, "s")
    assert subscriber.link.local_attach is not None
    assert subscriber.link.local_attach.snd_settle_mode == SenderSettleMode.UNSETTLED
    assert subscriber.reply.snd_settle_mode == SenderSettleMode.MIXED
    publisher = await client.publisher(own)
    publisher.send(b"1", b"one", settled=True)
    assert (await subscriber.delivery()).settled


# ---------------------------------------------------------------------- a publisher's reply


async def test_a_publisher_with_session_end_is_kept_for_its_session_and_no_longer(own: str) -> None:
    async with running_router("--standalone", "--limits-end-wait-s=1") as router:  # A-9a
        await _kept_for_its_session(router, own)


async def _kept_for_its_session(router: RouterProcess, own: str) -> None:
    subscriber = await (await RawClient.connect(router.port)).subscriber(own, "s")
    client = await RawClient.connect(router.port, own)
    publisher = await client.publisher(own, "p", exactly_once=False)
    target = publisher.reply.target
    assert isinstance(target, Target)
    assert (target.address, target.expiry_policy, target.timeout) == (own, "session-end", 0)
    publisher.send(b"1", b"one")
    first = await subscriber.delivery()
    publisher.link.detach(False)
    client.flush()
    await client.detached(publisher.link)
    row = await row_of(router, "publishers", f"{own}/p")
    assert row is not None
    assert (row["state"], row["expires_in_s"]) == ("suspended", None)
    again = await client.publisher(own, "p", exactly_once=False, unsettled={b"1": None})
    assert (again.reply.properties or {})[RESUME] == "resumed"
    assert again.reply.unsettled == {b"1": None}, "A-3b"
    again.send(b"1", b"one")
    subscriber.accept(first)
    assert (await again.outcome(b"1")).state == ACCEPTED
    again.link.detach(False)
    client.flush()
    await client.detached(again.link)
    client.session.end()
    client.flush()
    await until(lambda: row_of(router, "publishers", f"{own}/p"), lambda row: row is None or row["expires_in_s"])


@pytest.mark.parametrize(
    ("target", "stated"),
    [
        (Target(timeout=HOUR), ("session-end", HOUR)),  # K-5d
        (Target(), ("session-end", CAP)),
        (Target(timeout=10**9, expiry_policy=Symbol("link-detach")), ("link-detach", 7 * CAP)),
        (Target(expiry_policy=Symbol("never")), ("link-detach", 7 * CAP)),
    ],
)
async def test_the_stated_time_of_a_publisher_is_what_it_has(
    router: RouterProcess, own: str, target: Target, stated: tuple[str, int]
) -> None:
    client = await RawClient.connect(router.port, own)
    link = client.session.attach_sender(
        "p", source=Source(), target=replace(target, address=own), unsettled={}, desired_capabilities=[EXACTLY_ONCE]
    )
    client.flush()
    reported = (await client.attached(link)).target
    assert isinstance(reported, Target)
    assert (reported.expiry_policy, reported.timeout) == stated
    client.cut()
    assert await lasting(router, "publishers", f"{own}/p") > stated[1] - 60


async def test_a_publishers_expiry_policy_that_amqp_does_not_know_is_refused(router: RouterProcess, own: str) -> None:
    client = await RawClient.connect(router.port)
    link = client.session.attach_sender(
        "p", source=Source(), target=Target(address=own, expiry_policy=Symbol("at-noon"))
    )
    client.flush()
    error = (await client.detached(link)).error
    assert error is not None
    assert error.condition == "amqp:invalid-field"


async def test_the_publishers_source_comes_back_unchanged(router: RouterProcess, own: str) -> None:
    client = await RawClient.connect(router.port)
    source = Source(address="mine", outcomes=(Symbol("amqp:accepted:list"),), default_outcome=RELEASED)
    link = client.session.attach_sender("p", source=source, target=Target(address=own))
    client.flush()
    assert (await client.attached(link)).source == source


async def test_a_message_of_the_stated_size_is_taken() -> None:
    async with running_router("--standalone", "--limits-max-message-size", "2000") as router:
        client = await RawClient.connect(router.port)
        publisher = await client.publisher("t")
        assert publisher.reply.max_message_size == 2000
        publisher.send(b"1", b"x" * 1_900)  # a larger one is refused: test_misbehaving_clients.py
        assert (await publisher.outcome(b"1")).state == ACCEPTED
