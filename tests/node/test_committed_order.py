"""J-12: a journal of the level read_committed holds messages of transactions from their commit on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridges.node.errors import BadRequest, StorageError
from bridges.node.journal import MAX_OPEN_BYTES
from bridges.node.model import Subscription
from bridges.node.producers_core import Judgement
from bridges.node.receiver import Receiver
from bridges.node.shard_core import Shard, ShardBy
from oncewire.client import connect
from oncewire.client.isolation import Isolation
from oncewire.client.transactions.sequence_header import Producer, ProducerId, SequenceHeader
from oncewire.client.transactions.sequencer import Sequencer
from oncewire.wire import Message, Symbol, encode_message
from oncewire.wire.vocabulary import TRANSACTION
from tests.client.shell_helpers import LONG, until
from tests.node.parts import Life, receiving, stored
from tests.router.processes import RouterProcess


def message(body: bytes, header: SequenceHeader | None = None) -> bytes:
    annotations: dict[Symbol, object] = {} if header is None else header.annotations()
    return encode_message(Message(body, annotations=annotations))


@pytest.fixture
def life(tmp_path: Path) -> Life:
    return Life(tmp_path / "flights.journal")


def test_a_transaction_comes_when_it_commits_and_nothing_else_waits_for_it(life: Life) -> None:
    one, two = Producer(ProducerId("one", 1)), Producer(ProducerId("two", 2))
    life.append(message(b"1a", one.pending()), message(b"plain"), message(b"2a", two.pending()))
    assert life.bodies() == [b"plain"]
    life.append(message(b"1b", one.pending()), message(b"2b", two.last()))
    assert life.bodies() == [b"plain", b"2a", b"2b"]
    life.append(message(b"", one.ack()), message(b"alone", one.alone()))
    assert life.bodies() == [b"plain", b"2a", b"2b", b"1a", b"1b", b"alone"]


def test_what_is_rolled_back_never_comes_and_a_copy_of_it_neither(life: Life) -> None:
    writer = Producer(ProducerId("writer", 1))
    first = message(b"first", writer.pending())
    assert life.append(first, message(b"", writer.rollback())) == [Judgement.NEW, Judgement.NEW]
    assert life.append(first) == [Judgement.DUPLICATE]
    life.append(message(b"kept", writer.last()))
    assert life.bodies() == [b"kept"]


def test_a_transaction_whose_end_overtook_a_message_waits_for_it(life: Life) -> None:
    writer = Producer(ProducerId("writer", 1))
    headers = [writer.pending(), writer.pending(), writer.last()]
    first, second, last = (message(b"%d" % n, header) for n, header in enumerate(headers))
    life.append(first, last)
    assert life.bodies() == []
    life.append(second)
    assert life.bodies() == [b"0", b"2", b"1"], "in order of arrival, all in one group"


def test_an_uncommitted_journal_holds_messages_as_they_come(life: Life) -> None:
    life.level = None
    writer = Producer(ProducerId("writer", 1))
    life.append(message(b"a", writer.pending()), message(b"", writer.rollback()))
    assert life.bodies() == [b"a", b""]


def test_a_journal_keeps_its_level(life: Life) -> None:
    life.append()
    life.level = Isolation.READ_UNCOMMITTED
    with pytest.raises(BadRequest, match="has the level read_committed"):
        life.append()
    life.level = None
    writer = Producer(ProducerId("writer", 1))
    life.append(message(b"a", writer.pending()))
    assert life.bodies() == []


def test_a_journal_of_nobody_who_asked_for_a_level_is_read_uncommitted(life: Life) -> None:
    life.level = None
    life.append(message(b"old"))
    life.level = Isolation.READ_COMMITTED
    with pytest.raises(BadRequest, match="has the level read_uncommitted"):
        life.append()


def test_open_transactions_that_are_too_large_hold_the_receiver_and_lose_nothing(life: Life) -> None:
    life.max_open_bytes = 300
    writer = Producer(ProducerId("writer", 1))
    life.append(message(b"x" * 100, writer.pending()))
    held = message(b"y" * 100, writer.pending())
    with pytest.raises(StorageError, match="raise max_journal_bytes"):
        life.append(held)
    life.max_open_bytes = MAX_OPEN_BYTES
    life.append(held, message(b"", writer.ack()))
    assert life.bodies() == [b"x" * 100, b"y" * 100]


def test_a_transaction_that_cannot_be_read_is_rejected(life: Life) -> None:
    header = Producer(ProducerId("writer", 1)).pending()
    broken = encode_message(Message(b"x", annotations={**header.annotations(), TRANSACTION: "perhaps"}))
    assert life.append(broken) == [Judgement.MALFORMED_HEADER]
    assert life.bodies() == []


Act = Callable[[Producer], SequenceHeader]
ACTS: Sequence[Act] = (Producer.pending, Producer.pending, Producer.last, Producer.ack, Producer.rollback)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_the_journal_holds_what_a_sequencer_of_all_messages_hands_out(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever comes again, overtakes or ends, and though the node is started again after each group."""
    producers = [Producer(ProducerId(f"p{number}", number + 1)) for number in range(3)]
    sent: list[tuple[bytes, SequenceHeader]] = []
    for number in range(data.draw(st.integers(1, 25))):
        header = data.draw(st.sampled_from(ACTS))(data.draw(st.sampled_from(producers)))
        sent.append((b"%d" % number, header))
    order = data.draw(st.permutations(sent)) if data.draw(st.booleans()) else list(sent)
    order += data.draw(st.lists(st.sampled_from(sent), max_size=5))
    sequencer: Sequencer[bytes] = Sequencer()
    wanted = [
        placed.message
        for place, (body, header) in enumerate(order, 1)
        for effect in sequencer.feed(place, header, body, 0.0).effects
        for placed in _batch(effect)
    ]
    life = Life(tmp_path_factory.mktemp("life") / "flights.journal")
    rest = [message(body, header) for body, header in order]
    while rest:
        group = data.draw(st.integers(1, 8))
        life.append(*rest[:group])
        rest = rest[group:]
    assert life.bodies() == wanted


def _batch(effect: Any) -> Any:
    return effect.messages


async def test_a_receiver_journals_committed_messages_and_rejects_a_bad_header(
    router: RouterProcess, tmp_path: Path
) -> None:
    path = tmp_path / "flights.journal"
    committed = Subscription("flights", "node.flights", ("orders",), isolation=Isolation.READ_COMMITTED)
    writer = Producer(ProducerId("writer", 1))
    async with receiving(router.url, committed, path) as receiver, connect(router.url) as client:
        publisher = await client.publisher("orders")
        for header, body in ((writer.pending(), b"a"), (writer.pending(), b"b")):
            await publisher.send(Message(body, annotations=header.annotations()), timeout=LONG)
        await publisher.send(b"plain", timeout=LONG)
        assert stored(path) == [("orders", b"plain")]
        bad: dict[Symbol, object] = {**writer.pending().annotations(), TRANSACTION: "perhaps"}
        _ = await publisher.submit(Message(b"bad", annotations=bad))
        await until(lambda: receiver.numbers.messages["malformed-header"] == 1)
    again = replace(committed, isolation=None)
    async with receiving(router.url, again, path) as receiver, connect(router.url) as client:
        assert receiver.isolation is Isolation.READ_COMMITTED
        assert receiver.open_bytes > 0
        publisher = await client.publisher("orders")
        other = Producer(ProducerId("writer", 1))
        end = [other.pending(), other.pending(), other.last()][-1]
        await publisher.send(Message(b"c", annotations=end.annotations()), timeout=LONG)
        await until(lambda: receiver.open_bytes == 0)
    assert stored(path) == [("orders", body) for body in (b"plain", b"a", b"b", b"c")]


async def test_a_share_by_key_cannot_be_read_committed(tmp_path: Path) -> None:
    by_key = Subscription(
        "flights", "node", ("orders",), shard=Shard(0, 2, ShardBy.KEY), isolation=Isolation.READ_COMMITTED
    )
    with pytest.raises(BadRequest, match="share it out by topic"):
        await asyncio.to_thread(Receiver, by_key, tmp_path / "journal", ["amqp://127.0.0.1:1"])
