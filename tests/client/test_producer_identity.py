"""SQ-8 to SQ-10: a producer is its user's. What one user sends changes nothing for the producers of another."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from oncewire.client import Message, connect
from oncewire.client.isolation import Isolation
from oncewire.client.transactions import Consumer, SqliteStore, read_committed
from oncewire.client.transactions import feed as feeds
from oncewire.client.transactions.feed import Feed
from oncewire.client.transactions.inputs import InputJournal
from oncewire.client.transactions.sequence_header import (
    LAST_SEQUENCE,
    Flag,
    HeaderError,
    Producer,
    ProducerId,
    SequenceHeader,
    final_rollback,
    read_header,
)
from oncewire.client.transactions.sequencer import MAX_PRODUCERS, MAX_RANGES, Outcome, Sequencer
from oncewire.wire import Symbol, decode_message, encode_message
from oncewire.wire.vocabulary import ANONYMOUS, USER
from tests.client.sequence_world import Journal, Reader
from tests.client.store_world import Database
from tests.client.test_consumer import effects, note, running
from tests.router.processes import running_router
from tests.support.annotating import annotate
from tests.support.waiting import eventually

HONEST = ProducerId("shop", 1000, "ann")


def by(user: str, header: SequenceHeader) -> SequenceHeader:
    """The header as a reader has it when this user sends it."""
    return replace(header, producer=replace(header.producer, user=user))


ATTACKS: dict[str, list[SequenceHeader]] = {
    "a rollback of all numbers": [final_rollback(HONEST, 1)],
    "each number before its owner": [SequenceHeader(HONEST, number, Flag.ALONE) for number in range(1, 10)],
    "a floor above all": [SequenceHeader(HONEST, 100, Flag.ALONE, floor=100)],
    "a commit of what is open": [SequenceHeader(HONEST, 50, Flag.ACK, 1, 50)],
    "holes without end": [SequenceHeader(HONEST, 2 * n + 1000, Flag.ALONE) for n in range(10)],
}


def read(attack: Sequence[SequenceHeader], attacker: str, **limits: int) -> list[str]:
    """What a reader processes of two single messages and a transaction of the honest user, with attacks in between."""
    shop = Producer(HONEST)
    honest = [shop.alone(), shop.pending(), shop.pending(), shop.ack(), shop.alone()]
    reader = Reader(Journal(), lambda: Sequencer(max_ranges=8, **limits))  # type: ignore[arg-type]
    for number, header in enumerate(honest, 1):
        for forged in attack:
            reader.journal.append(by(attacker, forged), "forged")
        reader.journal.append(header, f"shop {number}")
        reader.read()
    return [body for _, body in reader.processed if body != "forged"]


HONEST_BODIES = ["shop 1", "shop 2", "shop 3", "shop 5"]


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("ring", [0, 100])
def test_what_another_user_sends_under_a_producers_name_has_no_effect_on_it(name: str, ring: int) -> None:
    for attacker in ("mallory", ANONYMOUS):
        assert read(ATTACKS[name], attacker, ring_messages=ring) == HONEST_BODIES
    # The control: who is the same user to the reader succeeds, as everybody did before producers had users.
    assert read(ATTACKS[name], HONEST.user, ring_messages=ring) != HONEST_BODIES


def test_copies_of_a_user_are_recognised_through_whichever_publisher_they_come() -> None:
    header = Producer(ProducerId("shop", 1000)).alone()
    message = encode_message(Message(b"1", annotations=header.annotations()))
    sequencer = Sequencer[str]()
    found = []
    for place, publisher in enumerate(("node-1/orders", "node-2/orders", "a1b2c3/out-7"), 1):
        delivered = decode_message(annotate(message, publisher, b"%d" % place, 7, "ann"))
        found.append(sequencer.feed(place, read_header(delivered.annotations), "1", 0.0).outcome)
    assert found == [Outcome.DELIVERED, Outcome.DUPLICATE, Outcome.DUPLICATE]


def test_the_quota_of_producers_is_each_users_own() -> None:
    sequencer = Sequencer[str](max_producers=3)
    outcomes = {
        user: [
            sequencer.feed(
                sequencer.position + 1, SequenceHeader(ProducerId(f"p{n}", 1, user), 1, Flag.ALONE), "", 0.0
            ).outcome
            for n in range(4)
        ]
        for user in ("mallory", "ann")
    }
    assert outcomes["mallory"] == outcomes["ann"] == [Outcome.DELIVERED] * 3 + [Outcome.REFUSED_CROWDED]
    assert MAX_PRODUCERS == 10_000


def test_the_quota_of_holes_is_each_users_own_and_is_given_back() -> None:
    sequencer = Sequencer[str](max_user_ranges=5, producer_retention=60.0)

    def feed(user: str, name: str, number: int, floor: int = 0) -> Outcome:
        header = SequenceHeader(ProducerId(name, 1 if name == "a" else 2, user), number, Flag.ALONE, 0, floor)
        return sequencer.feed(sequencer.position + 1, header, "", 61.0 * (name == "b")).outcome

    holes = [feed("mallory", name, number) for name in "ab" for number in (2, 4, 6)]
    assert holes == [Outcome.DELIVERED] * 5 + [Outcome.REFUSED_TANGLED]
    assert feed("ann", "a", 2) is Outcome.DELIVERED
    assert feed("mallory", "b", 6, floor=6) is Outcome.DELIVERED  # its own holes are closed
    assert [feed("mallory", "b", number) for number in (8, 10)] == [Outcome.DELIVERED, Outcome.REFUSED_TANGLED]
    sequencer.prune(90.0)
    assert feed("mallory", "b", 10) is Outcome.DELIVERED
    restored = Sequencer[str](max_user_ranges=2)
    restored.restore(
        sequencer.position,
        sequencer.horizons,
        [(producer, text) for producer, text in sequencer.changes().items() if text is not None],
    )
    crowded = SequenceHeader(ProducerId("b", 2, "mallory"), 20, Flag.ALONE)
    assert restored.feed(restored.position + 1, crowded, "", 90.0).outcome is Outcome.REFUSED_TANGLED


def test_forgetting_a_producer_of_the_far_future_refuses_nobody_else() -> None:
    sequencer = Sequencer[str](producer_retention=60.0)
    sequencer.feed(1, SequenceHeader(ProducerId("x", 1 << 50, "mallory"), 1, Flag.ALONE), "", 0.0)
    assert len(sequencer.prune(61.0)) == 1
    new = [
        sequencer.feed(place, SequenceHeader(ProducerId("new", 70_000, user), 1, Flag.ALONE), "", 70.0).outcome
        for place, user in enumerate(("ann", "mallory"), 2)
    ]
    assert new == [Outcome.DELIVERED, Outcome.REFUSED_PRUNED]


@pytest.mark.parametrize("ring", [0, 100])
def test_a_producer_from_before_there_were_users_is_continued_by_its_user(ring: int) -> None:
    shop = Producer(ProducerId("shop", 1000))
    before = [shop.alone(), shop.pending(), shop.pending()]
    reader = Reader(Journal(), lambda: Sequencer(ring_messages=ring))
    for header in before:
        reader.journal.append(header, str(header.sequence))
    reader.read()
    reader.restart()
    for header in (before[0], before[1], shop.pending(), shop.ack()):
        reader.journal.append(by("ann", header), str(header.sequence))
    reader.read()
    reader.restart()
    assert [body for _, body in reader.processed] == ["1", "2", "3", "4"]
    assert reader.sequencer.oldest_needed == reader.journal.end + 1
    # Another user gets what is finished, too: no copy is processed twice, whoever sends it.
    reader.journal.append(by("bob", before[0]), "1")
    reader.read()
    assert reader.outcomes[-1] is Outcome.DUPLICATE


def test_no_producer_has_a_name_that_a_database_cannot_keep() -> None:
    with pytest.raises(HeaderError, match="character 0"):
        ProducerId("a\0b", 1)


# --- stores -----------------------------------------------------------------------------------------------------------


def received(user: str, header: SequenceHeader, body: bytes) -> bytes:
    """A message as routers deliver it."""
    return encode_message(Message(body, annotations={**header.annotations(), USER: user}))


class Life:
    """A store that is opened, reads what it has, commits and is closed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, *payloads: bytes) -> list[object]:
        store = SqliteStore(self.path, "billing")
        try:
            inputs = InputJournal(store)
            feed = Feed(store, inputs, ["orders"], Isolation.READ_COMMITTED)
            inputs.append("orders", payloads)
            with store.transaction(feed.sequencers):
                bodies = [message.body for message in feed.messages(10_000)]
                feed.trim()
            return bodies
        finally:
            store.close()

    def rows(self, query: str) -> list[tuple[object, ...]]:
        connection = sqlite3.connect(self.path)
        try:
            return connection.execute(query).fetchall()
        finally:
            connection.close()


def test_a_store_keeps_the_producers_of_each_user_apart(tmp_path: Path) -> None:
    life = Life(tmp_path / "store.db")
    shop = Producer(ProducerId("shop", 1))
    one, two = shop.alone(), shop.alone()
    assert life.read(received("ann", one, b"1"), received("mallory", final_rollback(shop.producer, 1), b"")) == [b"1"]
    assert life.read(received("ann", one, b"1"), received("ann", two, b"2")) == [b"2"]
    assert life.rows("SELECT owner FROM oncewire_store_sequences") == [("ann",), ("mallory",)]


def test_who_breaks_the_rules_does_not_stop_a_reader_and_does_not_fill_its_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(feeds, "MAX_REFUSED", 3)
    life = Life(tmp_path / "store.db")
    holes = [
        received("mallory", SequenceHeader(ProducerId("x", 1), 2 * n, Flag.ALONE), b"x")
        for n in range(1, MAX_RANGES + 9)
    ]
    with caplog.at_level(logging.ERROR, "oncewire.client"):
        found = life.read(*holes, received("ann", Producer(ProducerId("shop", 1)).alone(), b"1"))
    assert found == [b"x"] * MAX_RANGES + [b"1"]
    refused = life.rows("SELECT owner, why FROM oncewire_store_refused")
    assert refused == [("mallory", "refused-tangled: producer x@1")] * 3
    assert len(caplog.records) == 4, "the fourth is the last one that is said"


# --- with routers -----------------------------------------------------------------------------------------------------


async def test_with_logins_a_consumer_and_a_reader_get_all_of_a_producer_whose_name_another_user_sends(
    tmp_path: Path,
) -> None:
    database = Database("sqlite", str(tmp_path / "store.db"))
    shop = Producer(ProducerId("shop", 1))
    one, two, three, end, last = shop.alone(), shop.pending(), shop.pending(), shop.ack(), shop.alone()
    forged = [final_rollback(shop.producer, 1), SequenceHeader(shop.producer, LAST_SEQUENCE - 1, Flag.ALONE)]
    async with asyncio.timeout(60), running_router("--standalone", "--users=ann:a,mallory:m,reader:r") as router:
        urls = {user: f"amqp://{user}:{user[0]}@127.0.0.1:{router.port}" for user in ("ann", "mallory", "reader")}
        consumer = Consumer(
            urls["reader"],
            store=database.url,
            name="billing",
            topics=["orders"],
            schema=["CREATE TABLE IF NOT EXISTS effects (body TEXT NOT NULL)"],
        )
        async with running(consumer, note), read_committed(urls["reader"], "orders") as reader:
            async with connect(urls["ann"]) as ann, connect(urls["mallory"]) as mallory, connect(router.url) as nobody:
                of_ann = await ann.publisher("orders")
                others = [await client.publisher("orders") for client in (mallory, nobody)]
                for header in (one, two, three, end, last):
                    for publisher in others:
                        for each in forged:
                            # What a client says of its user does not count.
                            claims = {**each.annotations(), USER: "ann", Symbol("x-opt-topic-publisher"): "ann/x"}
                            _ = await publisher.send(Message(b"", annotations=claims))
                    _ = await of_ann.send(Message(b"%d" % header.sequence, annotations=header.annotations()))
                # A copy by another publisher of the same user: it is recognised.
                again = await ann.publisher("orders")
                _ = await again.send(Message(b"1", annotations=one.annotations()))
                _ = await again.send(b"end")
            seen: list[tuple[object, str]] = []
            async for message in reader:
                if message.body:
                    seen.append((message.body, message.user))
                if message.body == b"end":
                    break
            await eventually(lambda: "end" in effects(database))
    assert seen == [(b"1", "ann"), (b"2", "ann"), (b"3", "ann"), (b"5", "ann"), (b"end", "ann")]
    assert [body for body in effects(database) if body] == ["1", "2", "3", "5", "end"]
