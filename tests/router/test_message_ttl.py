"""Messages expire at router processes where the rule of the page says so, by the ttl of their header (E-10)."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from delivery_records.model.limits import TopicPolicy
from oncewire.settings.parsers import NotAllowed
from oncewire.wire import ACCEPTED, DeliveryReceived, decode_message
from oncewire.wire.message import Header, Message, encode_message
from router.clients.message_ttl import read_ttl
from router.commands.local_network import LocalNetwork
from router.settings.topic_rules import MAX_TTL_S, described, policy_by, topic_rules
from tests.docs.code_blocks import ROOT, blocks_of
from tests.router.raw_client import RawClient, RawPublisher, RawSubscriber

RULES = json.dumps([{"topics": ["prices.#"], "ttl_s": 3600}])
"""Longer than any test: what expires here says so itself."""


def body_of(delivery: DeliveryReceived) -> object:
    return decode_message(delivery.payload).body


def send(publisher: RawPublisher, tag: bytes, message: bytes) -> None:
    publisher.link.send(tag, message)
    publisher.client.flush()


def grant(subscriber: RawSubscriber) -> None:
    subscriber.link.grant(10)
    subscriber.client.flush()


def with_ttl(body: bytes, milliseconds: int | None) -> bytes:
    return encode_message(Message(body, header=Header(ttl=milliseconds)))


@pytest.mark.parametrize(
    ("message", "ttl"),
    [
        (with_ttl(b"x", 1500), 1500),
        (with_ttl(b"x", 4_294_967_295), 4_294_967_295),
        (with_ttl(b"x", None), None),
        (encode_message(Message(b"x", header=Header(durable=True))), None),
        (encode_message(Message(b"x")), None),
        (b"", None),
        (b"no sections", None),
        (b"\x00\x53\x70\xc0\x03\x03\x40\x40", None),
        (b"\x00\x53\x70\xc0\x05\x03\x40\x40\xa1\x00", None),
        (b"\x00\x53\x70\xa1\x02ab", None),
    ],
    ids=[
        "a ttl",
        "the longest",
        "none",
        "a short header",
        "no header",
        "nothing",
        "malformed",
        "cut off",
        "no number",
        "no list",
    ],
)
def test_the_ttl_is_that_of_the_header(message: bytes, ttl: int | None) -> None:
    assert read_ttl(message, 0) == ttl


def test_another_message_format_has_no_ttl() -> None:
    assert read_ttl(with_ttl(b"x", 1500), 1) is None


def test_the_rule_of_the_page_says_how_long_messages_live() -> None:
    (block,) = [each for each in blocks_of(ROOT / "docs" / "expiry.md") if each.language == "toml"]
    rules = topic_rules(tomllib.loads(block.text)["topics"]["rules"])
    plain, policy = policy_by(rules, TopicPolicy(), "orders"), policy_by(rules, TopicPolicy(), "prices.eu")
    assert (policy.ttl_s, plain.ttl_s) == (30.0, 0.0)
    assert described(policy).endswith(" ttl=30s")
    assert "ttl" not in described(plain)


@pytest.mark.parametrize("wrong", [-1, MAX_TTL_S + 1, "soon"])
def test_a_life_that_cannot_be_is_refused(wrong: object) -> None:
    with pytest.raises(NotAllowed, match="ttl_s is 0 to 2592000 seconds"):
        topic_rules([{"topics": ["a"], "ttl_s": wrong}])


async def test_a_message_expires_at_another_router_than_its_publishers_and_its_log_says_so(tmp_path: Path) -> None:
    async with LocalNetwork(2, log_folder=tmp_path, settings={"topics.rules": RULES}) as network:
        r1, r2 = network.routers["r1"], network.routers["r2"]
        away = await RawClient.connect(r2.amqp_port, "till")
        subscriber = await away.subscriber("prices.eu", credit=0)
        client = await RawClient.connect(r1.amqp_port, "shop")
        publisher = await client.publisher("prices.eu")
        send(publisher, b"1", with_ttl(b"old", 1))
        publisher.send(b"2", b"new")
        assert (await publisher.outcome(b"1")).state == ACCEPTED
        grant(subscriber)
        assert body_of(await subscriber.delivery()) == b"new"
    assert "delivery_expired" in (tmp_path / "r2.log").read_text()
    assert "delivery_expired" not in (tmp_path / "r1.log").read_text()
