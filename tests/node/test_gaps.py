"""J-8: messages that never came, because the network had deleted the subscription, leave a mark that no crash hides."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridges.node.gaps import MAX_GAPS_REPORTED, Gap
from bridges.node.journal import Arrival, JournalControl, ReceiverJournal
from bridges.node.journal_reader import JournalReader
from oncewire.client import SqliteJournal, connect
from tests.client.shell_helpers import LONG
from tests.node.node_process import running_node
from tests.router.processes import RouterProcess

NOW_US = 1_700_000_000_000_000


class Receiving:
    """The receiver's end of a journal without a network."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.open()

    def open(self) -> None:
        self.client = SqliteJournal(self.path)
        self.journal = ReceiverJournal(self.client.connection, self.path, "flights")

    def start_over(self) -> None:
        """The process was killed and started again."""
        self.client.close()
        self.open()

    def begin(self, topic: str, incarnation: int) -> None:
        source = self.journal.source_id(topic)
        self.client.begin()
        self.journal.begin_incarnation(source, incarnation, NOW_US)
        self.client.commit()

    def append(self, *incarnations: int, topic: str = "orders", commits: bool = True) -> None:
        """A group of one message for each of these incarnations."""
        source = self.journal.source_id(topic)
        self.client.begin()
        self.journal.append([Arrival(source, b"x", None, incarnation) for incarnation in incarnations], NOW_US)
        if commits:
            self.client.commit()
        else:
            self.client.rollback()
            self.journal.reload()

    def gaps(self, low: int = 0, high: int = 1 << 60) -> list[tuple[int, str]]:
        reader = JournalReader(self.path)
        found = [(gap.position, gap.topic) for gap in reader.gaps(low, high)]
        reader.close()
        return found


@pytest.fixture
def receiving(tmp_path: Path) -> Iterator[Receiving]:
    found = Receiving(tmp_path / "flights.db")
    yield found
    found.client.close()


def test_the_first_message_of_a_new_incarnation_leaves_a_mark_before_it(receiving: Receiving) -> None:
    receiving.append(7, 7, 7)
    receiving.append(7, 9, 9)
    assert receiving.gaps() == [(4, "orders")]
    receiving.append(9)
    receiving.start_over()
    receiving.append(9, 9)
    assert receiving.gaps() == [(4, "orders")]


def test_a_gap_is_reported_to_the_range_that_passes_it_and_to_no_other(receiving: Receiving) -> None:
    receiving.append(7, 7, 7)
    receiving.append(9, 9)
    assert [receiving.gaps(low, high) != [] for low, high in [(0, 3), (0, 4), (2, 5), (3, 4), (4, 5)]] == [
        False,
        True,
        True,
        True,
        False,
    ]


def test_a_change_that_was_not_written_is_noticed_again(receiving: Receiving) -> None:
    """The transaction with the first messages is undone, or the process dies in it: the mark goes and comes with it."""
    receiving.append(7)
    receiving.append(9, commits=False)
    assert receiving.gaps() == []
    receiving.start_over()
    receiving.append(9)
    assert receiving.gaps() == [(1, "orders")]


def test_a_subscription_that_was_deleted_before_its_first_message_is_noticed(receiving: Receiving) -> None:
    receiving.begin("orders", 7)
    receiving.start_over()
    receiving.begin("orders", 7)
    assert receiving.gaps() == []
    receiving.begin("orders", 8)
    receiving.append(8)
    assert receiving.gaps() == [(0, "orders")]


def test_each_topic_has_its_own_incarnations_and_one_that_is_not_reported_counts_for_nothing(
    receiving: Receiving,
) -> None:
    receiving.append(7)
    receiving.append(3, topic="trains")
    receiving.append(0, 7)
    receiving.append(4, topic="trains")
    assert receiving.gaps() == [(4, "trains")]
    receiving.append(8)
    assert receiving.gaps() == [(4, "trains"), (5, "orders")]


def test_gaps_go_with_the_messages_before_them_and_a_few_are_reported_at_once(receiving: Receiving) -> None:
    receiving.append(*range(1, 31))
    assert [position for position, _ in receiving.gaps()] == list(range(1, 1 + MAX_GAPS_REPORTED))
    control = JournalControl(receiving.path)
    control.trim(20, 1.0)
    assert not control.delete_expired(1.0)
    control.close()
    assert [position for position, _ in receiving.gaps()] == list(range(20, 30))


@pytest.mark.timeout(120)
async def test_a_node_that_was_away_for_too_long_knows_where_messages_are_missing(
    router: RouterProcess, tmp_path: Path
) -> None:
    """The node is killed, the network deletes its subscription, a message is accepted without it, the node is back."""
    more = "".join(
        f'[[subscription]]\nname = "{topic}"\ntopics = ["{topic}"]\ntimeout_s = {timeout_s}\n'
        for topic, timeout_s in (("orders", 1), ("trains", 3600))
    )
    with running_node(tmp_path / "node", [router.url], more) as node:
        async with connect(router.url, container_id="test") as client:
            orders, trains = [await client.publisher(topic, name=topic) for topic in ("orders", "trains")]
            with node.connect() as remote:

                async def is_confirmed(subscription: str) -> None:
                    await asyncio.to_thread(remote.subscribe, subscription, [subscription])

                await is_confirmed("orders")
                await is_confirmed("trains")
                for publisher in (orders, orders, orders, trains):
                    await publisher.send(b"before", timeout=LONG)
                node.end()
                await orders.send(b"never", timeout=LONG)  # accepted: nobody is owed it any more
                node.start()
                await is_confirmed("orders")
                for publisher in (orders, trains):
                    await publisher.send(b"after", timeout=LONG)
                found = await asyncio.to_thread(remote.offsets, "orders", 0)
                assert found.last == 4
                (gap,) = found.gaps
                assert gap == Gap(3, "orders", gap.noted_us)
                assert (await asyncio.to_thread(remote.offsets, "trains", 0)).gaps == ()
