"""J-9: of a sharded subscription each node keeps the messages of its share of the keys, and accepts the others."""

from __future__ import annotations

import asyncio
import re
import zlib
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridges.node.errors import BadRequest
from bridges.node.model import NodeSettings, Subscription
from bridges.node.node import BridgeNode
from bridges.node.receiver import ELSEWHERE, Receiver
from bridges.node.settings_loading import load
from bridges.node.shard_core import Shard, ShardBy, _any_key, parse_shard, shard_key
from oncewire.cli.errors import CliError
from oncewire.client import Message, connect
from oncewire.wire import BodyKind, Header, Properties, Symbol, encode_message
from tests.client.shell_helpers import LONG
from tests.node.parts import receiving, stored
from tests.router.processes import RouterProcess

KEYS = [f"customer-{number}" for number in range(40)]


def keyed(body: bytes, key: str | None) -> Message:
    return Message(body, properties=None if key is None else Properties(group_id=key))


def bodies(path: Path) -> list[bytes]:
    return [body for _, body in stored(path) if isinstance(body, bytes)]


def subscription(shard: Shard | None, name: str = "flights") -> Subscription:
    return Subscription(name, f"node.{name}#{shard}", ("orders",), shard=shard)


@pytest.mark.parametrize(
    ("message", "key"),
    [
        (keyed(b"body", "ü"), "ü".encode()),
        (Message(b"body", annotations={Symbol("x-opt-partition-key"): "k"}), b"k"),
        (Message(b"body", annotations={Symbol("x-opt-partition-key"): b"\xff"}), b"\xff"),
        (Message(b"body", annotations={Symbol("x-opt-topic-publisher"): "p"}), b"body"),
        (Message("text", BodyKind.VALUE), b"text"),
        (Message(42, BodyKind.VALUE), b"42"),
        (Message({"a": 1}, BodyKind.VALUE), b""),
        (Message(None, BodyKind.VALUE), b""),
    ],
)
def test_a_message_is_shared_out_by_its_key_else_by_its_body(message: Message, key: bytes) -> None:
    assert shard_key(encode_message(message)) == key


TEXTS = st.text(max_size=300)
SYMBOLS = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=300)


@given(
    st.builds(
        Message,
        st.binary(max_size=300),
        properties=st.none()
        | st.builds(
            Properties,
            message_id=st.none() | TEXTS | st.integers(0, 1 << 63) | st.binary(max_size=9) | st.uuids(),
            to=st.none() | TEXTS,
            content_type=st.none() | SYMBOLS.map(Symbol),
            creation_time=st.none() | st.integers(-5, 1 << 40),
            group_id=st.none() | TEXTS,
            group_sequence=st.none() | st.integers(0, 9),
        ),
        header=st.none() | st.builds(Header, durable=st.booleans(), priority=st.none() | st.integers(0, 9)),
        annotations=st.dictionaries(SYMBOLS.map(Symbol), TEXTS | st.binary(max_size=300), max_size=3),
        application_properties=st.dictionaries(TEXTS, TEXTS | st.integers(0, 9), max_size=3),
        footer=st.dictionaries(SYMBOLS.map(Symbol), TEXTS, max_size=1),
    )
)
def test_the_short_way_to_the_key_finds_what_the_long_one_does(message: Message) -> None:
    payload = encode_message(message)
    assert shard_key(payload) == _any_key(payload)


def test_what_cannot_be_decoded_has_a_share_too() -> None:
    assert shard_key(b"\x00\x53\x75\xa0") == b""


@given(st.binary(max_size=40), st.text(max_size=10) | st.none(), st.integers(2, 9))
def test_each_message_has_one_share_and_it_is_that_of_crc32(body: bytes, key: str | None, count: int) -> None:
    payload = encode_message(keyed(body, key))
    found = [number for number in range(count) if Shard(number, count).holds(payload)]
    assert found == [zlib.crc32(body if key is None else key.encode()) % count]


def test_routers_annotations_do_not_move_a_message() -> None:
    plain = keyed(b"body", None)
    annotated = Message(b"body", annotations={Symbol("x-opt-topic-publisher"): "p/q", Symbol("x-opt-topic-tag"): b"7"})
    shard = Shard(zlib.crc32(b"body") % 5, 5)
    assert shard.holds(encode_message(plain))
    assert shard.holds(encode_message(annotated))


@pytest.mark.parametrize("text", ["", "1", "2/2", "0/1", "-1/2", "0/65", "a/b", "0/2/3", "0 /2"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        parse_shard(text)


async def test_two_nodes_keep_each_message_once_and_all_of_a_key_in_order(
    router: RouterProcess, tmp_path: Path
) -> None:
    shards = [Shard(0, 2), Shard(1, 2)]
    async with AsyncExitStack() as stack:
        receivers = [
            await stack.enter_async_context(receiving(router.url, subscription(shard), tmp_path / f"{shard.number}.db"))
            for shard in shards
        ]
        client = await stack.enter_async_context(connect(router.url, container_id="shop"))
        publisher = await client.publisher("orders", name="p")
        for number in range(600):
            key = None if number % 7 == 0 else KEYS[number % len(KEYS)]
            _ = await publisher.submit(keyed(b"%d" % number, key))
        await publisher.flush(LONG)
    found = [[int(str(body, "ascii")) for body in bodies(receiver.path)] for receiver in receivers]
    assert sorted(found[0] + found[1]) == list(range(600))
    assert all(numbers == sorted(numbers) for numbers in found)
    assert min(map(len, found)) > 100
    for numbers, receiver in zip(found, receivers, strict=True):
        assert receiver.numbers.messages["new"] == len(numbers)
        assert receiver.numbers.messages[ELSEWHERE] == 600 - len(numbers)


def test_where_topics_are_shared_out_a_node_keeps_all_it_receives() -> None:
    payload = encode_message(keyed(b"body", "key"))
    assert [Shard(number, 3, ShardBy.TOPIC).holds(payload) for number in range(3)] == [True] * 3


async def test_a_node_that_comes_back_is_owed_nothing_it_has_passed_on(router: RouterProcess, tmp_path: Path) -> None:
    path, shard = tmp_path / "flights.db", Shard(1, 2)
    mine = [key for key in KEYS if zlib.crc32(key.encode()) % 2 == 1]
    theirs = [key for key in KEYS if key not in mine]
    async with connect(router.url, container_id="shop") as client:
        publisher = await client.publisher("orders", name="p")
        async with receiving(router.url, subscription(shard), path):
            for key in theirs:
                await publisher.send(keyed(b"theirs", key), timeout=LONG)
        async with receiving(router.url, subscription(shard), path) as receiver:
            for key in mine:
                await publisher.send(keyed(key.encode(), key), timeout=LONG)
            assert receiver.numbers.messages[ELSEWHERE] == 0
    assert bodies(path) == [key.encode() for key in mine]


def test_a_journal_has_its_share_for_good(tmp_path: Path) -> None:
    def make(shard: Shard | None, name: str = "sharded") -> None:
        Receiver(subscription(shard, name), tmp_path / f"{name}.db", ["amqp://127.0.0.1:1"]).close()

    make(Shard(0, 2))
    make(Shard(0, 2))
    for other in (Shard(1, 2), Shard(0, 3), Shard(0, 2, ShardBy.TOPIC), None):
        with pytest.raises(BadRequest, match=r"is for shard 0/2 by key; set the shard that it was made with"):
            make(other)
    make(None, "whole")
    make(Shard(0, 2), "whole")  # it has no message yet


async def test_a_journal_with_messages_is_not_made_a_shard(router: RouterProcess, tmp_path: Path) -> None:
    path = tmp_path / "flights.db"
    async with receiving(router.url, subscription(None), path), connect(router.url, container_id="shop") as client:
        await (await client.publisher("orders", name="p")).send(b"one", timeout=LONG)
    with pytest.raises(BadRequest, match=r"as shard 0/2 by key: its journal .* is for all messages"):
        Receiver(subscription(Shard(0, 2)), path, [router.url])


async def test_a_shard_is_not_read_as_if_it_were_all(router: RouterProcess, tmp_path: Path) -> None:
    settings = NodeSettings("node", tmp_path, (router.url,), subscriptions=(subscription(Shard(1, 3)),))
    node = BridgeNode(settings)
    running = asyncio.create_task(node.run())
    try:
        await node.started.wait(0, LONG)
        with pytest.raises(BadRequest, match="keeps shard 1/3 of it; name all 3 nodes in the option bridge"):
            await node.subscribe("flights", ["orders"])
        assert node.state()["subscriptions"]["flights"]["shard"] == "1/3"  # type: ignore[index]
    finally:
        running.cancel()
        await asyncio.wait([running])


def test_nodes_that_differ_in_the_shard_only_are_different_subscribers(tmp_path: Path) -> None:
    def read(shard: str) -> Subscription:
        file = tmp_path / "node.toml"
        file.write_text(
            f'name = "n"\nfolder = "{tmp_path}"\nrouters = ["amqp://r"]\n'
            f'[[subscription]]\nname = "flights"\ntopics = ["orders"]\nshard = "{shard}"\n'
        )
        (found,) = load(str(file)).node.subscriptions
        return found

    assert read("0/2").shard == Shard(0, 2)
    assert (read("0/2").container_id, read("1/2").container_id) == ("n.flights#0/2", "n.flights#1/2")
    assert (read("").container_id, read("").shard) == ("n.flights", None)
    assert read('0/2"\nshard_by = "topic').shard == Shard(0, 2, ShardBy.TOPIC)
    with pytest.raises(CliError, match=r"subscription.shard = .2/2. .* cannot be used"):
        read("2/2")
