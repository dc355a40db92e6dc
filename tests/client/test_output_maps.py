"""The maps of a store's publishers (ST-7): the publisher's core over a SQLite store, beside the reference router.

The owner of the store is killed, its connection and the router break, its session expires; no subscriber may process a
message twice unmarked, and none is lost. The last test takes parts of the rule out and expects the same runs to notice.
"""

from __future__ import annotations

import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import oncewire.client.transactions.store
from oncewire.client.core_effects import ReportOutcome, SendTransfer
from oncewire.client.journal_records import PublisherChanges
from oncewire.client.publisher_core import PublisherCore
from oncewire.client.transactions import SqliteStore, output_maps
from oncewire.client.transactions.inputs import InputJournal
from oncewire.wire import Message, decode_message, vocabulary
from tests.client.core_world import PublisherSide, World, run_schedule

SEEDS = 12
TOPIC = "totals"


class StoreDisk:
    """What the store holds, as the world asks for it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.places: dict[int, int] = {}
        """Number of an intent -> its place among all that were decided."""
        self.open()

    def open(self) -> None:
        """Be the next owner."""
        self.store = SqliteStore(self.path, "billing")
        self.store.run("PRAGMA synchronous=OFF")  # no power is lost here
        with self.store.guarded():
            self.store.maps.give_links([TOPIC])
        self.journal = InputJournal(self.store)
        self.link = self.store.maps.link(TOPIC)

    @property
    def next_number(self) -> int:
        return len(self.places)

    @property
    def messages(self) -> dict[int, Any]:
        assert self.store.run("SELECT number FROM oncewire_store_intents") == [
            (intent.number,) for intent in self.store.unconfirmed
        ]
        return {}

    def write(self, changes: PublisherChanges) -> None:
        self.journal.begin()
        self.journal.write_publisher(self.link, changes)
        self.journal.commit()


class StoredPublisher(PublisherSide):
    """The process of a consumer that publishes what its transactions decide on."""

    disk: StoreDisk  # type: ignore[assignment]

    def __init__(self, router: Any, path: Path) -> None:
        self.path = path
        super().__init__(router)

    def make_core(self) -> PublisherCore:
        if "places" in vars(self.disk):
            self.disk.store.close()
            self.disk.open()
        else:
            self.disk = StoreDisk(self.path)
        state = self.disk.journal.open_publisher(self.disk.link)
        return PublisherCore(window=6, resend_in_doubt=True, recovered=state)

    def submit(self) -> None:
        if self.core.has_room(1):
            store, place = self.disk.store, self.disk.next_number
            with store.transaction({}):
                store.publish(TOPIC, Message(b"%d" % place))
            intent = store.unconfirmed[-1]
            assert intent.number not in self.disk.places, "P-2"
            self.disk.places[intent.number] = place
            self.core.take_stored(intent.number, intent.encode())

    def hear(self, report: ReportOutcome) -> None:
        super().hear(report._replace(number=self.disk.places[report.number]))

    def perform(self, effects: list[Any]) -> None:
        super().perform([_plain(each) if isinstance(each, SendTransfer) else each for each in effects])

    def crash(self, *, after_write: bool) -> None:
        writing, self.writing = self.writing, None
        if after_write and writing is not None:
            self.disk.write(writing)
            for number, outcome in writing.decided:
                self.outcomes.setdefault(self.disk.places[number], outcome.kind)
        super().crash(after_write=False)


def _plain(effect: SendTransfer) -> SendTransfer:
    message = decode_message(effect.payload)
    in_doubt = effect.in_doubt or vocabulary.IN_DOUBT in message.annotations
    assert isinstance(message.body, bytes)
    return replace(effect, payload=message.body, in_doubt=in_doubt)


def run_all(folder: Path) -> int:
    resumed = 0
    for seed in range(SEEDS):
        world = World()
        publisher = StoredPublisher(world.router, folder / f"{seed}.db")
        world.publisher = world.sides[0] = publisher
        try:
            run_schedule(seed, world, expire=bool(seed % 2))
        finally:
            publisher.disk.store.close()
        resumed += world.router.resumed_entries
    return resumed


def test_owners_of_a_store_one_after_the_other_publish_each_message_once(tmp_path: Path) -> None:
    assert run_all(tmp_path) > 150


# name -> (text of output_maps.py, what stands there instead)
MUTANTS = {
    "P-1: what may have reached a socket is not in the map": (
        "(changes.exposed_before, changes.session, store, link)",
        "(0, changes.session, store, link)",
    ),
    "P-a: what has its outcome stays in the map": (
        "[(store, *ends) for ends in SequenceSet((number, number) for number in ended).ranges()]",
        "[]",
    ),
    "A-5: the next owner does not mark what is in doubt": ("if changes.doubted:", "if False:"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_part_of_the_rule_that_is_taken_out_is_noticed(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text, instead = MUTANTS[name]
    source = Path(str(output_maps.__file__)).read_text(encoding="utf-8")
    assert source.count(text) == 1, "the mutant must name one place"
    mutant = types.ModuleType("output_maps_mutant")
    monkeypatch.setitem(sys.modules, mutant.__name__, mutant)  # dataclasses look their module up
    exec(compile(source.replace(text, instead), mutant.__name__, "exec"), mutant.__dict__)
    monkeypatch.setattr(oncewire.client.transactions.store, "OutputMaps", mutant.__dict__["OutputMaps"])
    with pytest.raises((AssertionError, KeyError)):
        run_all(tmp_path)
