"""Subscriptions that a publisher requires (I-3c), at router processes: on arrival, after a kill, by command."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from oncewire.client import OutcomeKind, Subscriptions, connect
from oncewire.wire import ACCEPTED, RELEASED, ReceiverSettleMode, Source, Symbol, Target, UInt, vocabulary
from router.commands.local_network import LocalNetwork
from tests.router.processes import RouterProcess
from tests.router.raw_client import RawClient
from tests.support.commands import run
from tests.support.terminal import ONCEWIRE

LONG = 40.0
COMMANDS = "pub=oncewire.client.cli:pub"


pub = partial(run, COMMANDS, "pub", program=ONCEWIRE)


async def test_a_stock_publisher_may_require_subscriptions_and_a_subscriber_is_sent_nothing_of_the_rest(
    router: RouterProcess,
) -> None:
    client = await RawClient.connect(router.port)
    subscriber = await client.subscriber("orders")
    strict = await client.publisher("orders", exactly_once=False, properties={vocabulary.REQUIRE: UInt(2)})
    assert strict.reply.properties is not None
    assert strict.reply.properties[vocabulary.REQUIRE] == 2
    refused = strict.send(b"1", b"refused")
    assert (await strict.outcome(b"1")).state == RELEASED
    strict.settle(refused)
    plain = await client.publisher("orders", "plain")
    plain.send(b"2", b"sent")
    subscriber.accept(await subscriber.delivery())
    assert (await plain.outcome(b"2")).state == ACCEPTED


@pytest.mark.parametrize("value", ["one", -1, True, 1 << 32])
async def test_what_is_no_number_of_subscriptions_is_refused(router: RouterProcess, value: object) -> None:
    assert await refusal(router, {vocabulary.REQUIRE: value}) == "amqp:invalid-field"


async def test_a_link_whose_router_forgets_a_message_with_its_outcome_cannot_require(router: RouterProcess) -> None:
    asked: dict[Symbol, object] = {vocabulary.REQUIRE: UInt(1)}
    assert await refusal(router, asked, rcv_settle_mode=ReceiverSettleMode.FIRST) == "amqp:invalid-field"


async def refusal(router: RouterProcess, properties: dict[Symbol, Any], **options: Any) -> str:
    client = await RawClient.connect(router.port)
    link = client.session.attach_sender(
        "pub", source=Source(address="pub"), target=Target(address="orders"), properties=properties, **options
    )
    client.flush()
    error = (await client.detached(link)).error
    assert error is not None
    return error.condition


async def test_what_was_forwarded_before_a_kill_is_not_released_after_it_although_its_subscription_is_gone(
    tmp_path: Path,
) -> None:
    async with LocalNetwork(2, log_folder=tmp_path, settings={"etcd.lease_ttl_s": "3"}) as network:
        urls = {name: router.url for name, router in network.routers.items()}
        async with (
            connect([urls["r1"], urls["r2"]], container_id="shop") as shop,
            connect(urls["r2"], container_id="till") as till,
            asyncio.timeout(LONG),
        ):
            publisher = await shop.publisher("orders", name="p", require=1)
            subscriber = await till.subscriber("orders", name="s")
            sending = await publisher.submit(b"x")
            assert (await subscriber.receive()).body == b"x"
            network.sigstop("r1")
            await subscriber.unsubscribe()
            await network.kill("r1")
            outcome = await sending
            assert (outcome.kind, outcome.condition) == (OutcomeKind.UNKNOWN, "oncewire:too-few-subscriptions")
            assert outcome.subscriptions == Subscriptions(0)


async def test_pub_says_that_nobody_subscribed_and_with_require_ends_with_an_error(router: RouterProcess) -> None:
    code, out, err = await pub("ordres", "--url", router.url, text="a\nb\n")
    assert (code, out, err) == (0, "published 2, accepted 2 by 0 subscriptions\n", "")
    code, out, err = await pub("ordres", "--require", "1", "--url", router.url, text="a\n")
    assert (code, out) == (1, "published 1, accepted 0\n")
    assert "released" in err
    assert err.startswith("1 message was not accepted: the first is released")
    assert "the topic has fewer than 1 subscription, or had" in err
    code, out, _ = await pub("ordres", "--require", "1", "--json", "--url", router.url, text="a\n")
    report = json.loads(out)
    assert (code, report["accepted"], report["accepted_by_none"], report["not_accepted"]) == (1, 0, 0, 1)
    code, _, err = await pub("ordres", "--require", "1", "--settled", "--url", router.url, text="")
    assert code == 2
    assert "--settled waits for none" in err


async def test_pub_sends_each_message_of_the_command_line(router: RouterProcess) -> None:
    async with connect(router.url, container_id="till") as till:
        subscriber = await till.subscriber("orders", name="s")
        sent = asyncio.create_task(pub("orders", "two coffees", "", "\u2615", "--url", router.url, text="not this"))
        async with asyncio.timeout(LONG):
            for expected in ("two coffees", "", "\u2615"):
                delivery = await subscriber.receive()
                assert delivery.body == expected.encode()
                await delivery.accept()
            assert await sent == (0, "published 3, accepted 3\n", "")
    code, out, _ = await pub("orders", "at most once", "--settled", "--url", router.url, text="")
    assert (code, out) == (0, "published 1, settled\n")
    code, _, err = await pub("orders", "a", "--file", "-", "--url", router.url, text="")
    assert code == 2
    assert "not from both" in err
