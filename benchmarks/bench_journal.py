"""Journals: what a stored message costs and what a read one costs, and both with ever longer journals.

    python benchmarks/bench_journal.py [--seconds 3] [--lengths 10000 100000 ...] [--publishers 1] [--json]

In the store alone, on a SQLite file that syncs each transaction (FULL): an append as the subscription of a journal
makes it, by the journal of its subscriber with what its map gains and loses, and reads as readers make them. Beside it
the syncs a second that the disk allows. `--publishers` says whose messages alternate. Ten million messages take some
minutes, and 2 GB of the disk.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness import machine

from bridges.journal import log
from bridges.journal.contents import JOURNALS
from bridges.journal.model import JournalSettings, NewMessage
from bridges.store.client_journals import FeedJournal
from oncewire.client.journal_records import SubscriberChanges
from oncewire.client.outcomes import ACCEPTED
from oncewire.store.contents import Contents
from oncewire.store.open_store import OpenStore
from oncewire.store.owners import take_over
from oncewire.store.sqlite import SqliteStore
from oncewire.store.store import Transaction
from oncewire.wire import encode_data_message

NAME = "bench"
BYTES = 100
GROUP = 2048
"""Messages of one transaction, as the subscription has them."""
READ_COUNT = 256
READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Rate:
    """What was done in a second of time, and what one cost in microseconds of processor time."""

    messages_s: float
    cpu_us: float


def measured(work: Callable[[], int], seconds: float) -> Rate:
    """Repeat work that returns how many messages it did."""
    begun, cpu = time.perf_counter(), time.process_time()
    count = 0
    while time.perf_counter() - begun < seconds:
        count += work()
    return Rate(count / (time.perf_counter() - begun), 1e6 * (time.process_time() - cpu) / count)


def syncs(folder: Path, seconds: float) -> float:
    """Writes of a page that the disk has synced, a second."""
    with (folder / "sync").open("wb") as file:

        def one() -> int:
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
            return 1

        return measured(one, seconds).messages_s


class Bench:
    """One journal in a file of its own, with the subscription that fills it."""

    def __init__(self, folder: Path, publishers: int) -> None:
        self.store: OpenStore[Transaction] = OpenStore(SqliteStore(folder / "edge.db", contents=Contents([JOURNALS])))
        self.do(lambda do: log.configure(do, NAME, JournalSettings(max_bytes=1 << 40)))
        self._journal = FeedJournal(self.store, self.do(lambda do: take_over(do, NAME)))
        self._journal.open_subscriber(NAME)
        self._message = NewMessage(encode_data_message(bytes(BYTES)))
        self._publishers = publishers
        self._next = 0
        self._settled: tuple[bytes, ...] = ()
        self._after = 0

    def _tags(self) -> tuple[bytes, ...]:
        """Network tags (delivery_records/model/tags.py) of the next messages, one of each publisher in turn."""
        numbers = range(self._next, self._next + GROUP)
        self._next += GROUP
        each = self._publishers
        return tuple(bytes(9) + (n % each).to_bytes(2, "big") + (n // each).to_bytes(8, "big") for n in numbers)

    def append(self) -> int:
        """J-16: a group, the tags of its deliveries, and what its publishers have settled of the group before."""
        tags = self._tags()
        self._journal.begin()
        self._journal.add(lambda do: log.append(do, NAME, [self._message] * GROUP, "bench.#"))
        entries = tuple((tag, ACCEPTED) for tag in tags)
        self._journal.write_subscriber(NAME, SubscriberChanges(1, entries, self._settled))
        self._journal.commit()
        self._settled = tags
        return GROUP

    def read(self) -> int:
        """A portion behind the one before."""
        _, messages = self.do(lambda do: log.read(do, NAME, self._after, READ_COUNT, READ_BYTES))
        self._after = messages[-1].position if messages else 0
        return len(messages)

    def do(self, job: Callable[[Transaction], Any]) -> Any:
        """One transaction."""
        return self.store.transact_blocking(job)

    def fill(self, length: int) -> None:
        """Append until the journal is so long."""
        while self.do(lambda do: log.state(do, NAME)).last < length:
            self.append()


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure at each length."""
    found: dict[str, Any] = {"machine": machine(), "bytes": BYTES, "group": GROUP, "lengths": {}}
    with tempfile.TemporaryDirectory(dir=".") as name:
        found["syncs_s"] = syncs(Path(name), options.seconds)
        bench = Bench(Path(name), options.publishers)
        for length in sorted(options.lengths):
            bench.fill(length)
            append, read = measured(bench.append, options.seconds), measured(bench.read, options.seconds)
            found["lengths"][length] = {"append": asdict(append), "read": asdict(read)}
        await bench.store.close()
    return found


def main() -> None:
    """Measure and print."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--lengths", type=int, nargs="+", default=[10_000, 100_000, 1_000_000, 10_000_000])
    parser.add_argument("--publishers", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = asyncio.run(measure(options))
    if options.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{found['machine']}; the disk syncs {found['syncs_s']:,.0f} times a second")
    for length, rates in found["lengths"].items():
        cells = (f"{kind} {rate['messages_s']:>9,.0f}/s {rate['cpu_us']:5.1f} us" for kind, rate in rates.items())
        print(f"{length:>10,} messages of {BYTES} B:  {'   '.join(cells)}")


if __name__ == "__main__":
    main()
