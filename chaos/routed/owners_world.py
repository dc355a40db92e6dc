"""Runs with processes that share a store: who owns what, and what owners append (J-16, J-27, J-28, W-26, CO-10, CO-11).

Each process wants to run the same subscription of a journal, and asks for the same shards. They crash, stop in the
middle of a transaction, and are cut off from the database; whether a commit that was cut off has happened is not known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

from bridges.journal import log
from bridges.journal.log import ALL
from bridges.journal.model import JournalSettings, NewMessage, Place
from chaos.routed.code import Code
from chaos.routed.judge import Judge, Violation
from chaos.routed.owners_store import Held, OwnersStore
from oncewire.client import JournalError, JournalOwnerError
from oncewire.client.journal_records import SubscriberChanges
from oncewire.client.outcomes import ACCEPTED
from oncewire.store.errors import StoreUnreachable
from oncewire.store.rules_core import to_s
from oncewire.wire import decode_message, encode_data_message

NAME, FEED, TOPIC = "log", "journal 'log' from 't'", "t"
SHARDS = tuple(f"shard {number}" for number in range(5))
LEASE_S = 10.0
PUBLISHED = 150
STORM_STEPS = 700
CALM_STEPS = 3_000
SETTLING_LOOKS = 40
"""Of each process, in calm."""
EVEN_LOOKS = 6
"""Further ones, in which nothing moves any more."""


class SimTopic:
    """What the network has of the subscription: messages that are not settled, and who is attached."""

    def __init__(self) -> None:
        self.unsettled = [tag.to_bytes(4, "big") for tag in range(1, PUBLISHED + 1)]
        self.attached: SimProcess | None = None


class SimProcess:
    """One process: a subscription that it runs or stands by for, and shards."""

    def __init__(self, world: OwnersWorld, name: str) -> None:
        self.name = name
        self._world = world
        self._owner: Any = None
        self._journal: Any = None
        self._ahead: list[bytes] = []
        self._settled: list[bytes] = []
        self._broken: Callable[[], None] | None = None
        self._end: Callable[[], None] | None = None
        self.shards: dict[str, Any] = dict.fromkeys(SHARDS)
        self._leaving: list[str] = []
        self._may_look = False
        self._is_held_up = False
        self.stopped = 0
        self.is_gone = False
        self.cut_off = 0

    # --- the database -------------------------------------------------------------------------------------------------

    def transact_blocking(self, job: Callable[[Any], Any]) -> Any:
        """See `OpenStore`: a cut connection fails, and what it was to commit has happened or not."""
        world = self._world
        if self.cut_off and world.random.random() < 0.5:
            raise StoreUnreachable("nothing was done", "the database is cut off", "wait")
        result = world.transact(job)
        if self.cut_off:
            raise StoreUnreachable("it is not known what was done", "the database is cut off", "wait")
        return result

    def _stop_in(self, work: Callable[[], None]) -> None:
        """Stop in the transaction of an owner, with the lock of its row, and go on with it later."""
        world, owner = self._world, self._owner
        world.transact(owner.check)
        is_over = False

        def end() -> None:
            nonlocal is_over
            is_over = True

        def go_on() -> None:
            if is_over:
                self._detach()
                return
            del world.store.connection.held[FEED]
            self._append_in(work)

        world.store.connection.held[FEED] = self._end = end
        self.stopped, self._broken = world.random.choice((2, 30)), go_on

    @property
    def is_stopped_inside(self) -> bool:
        """Whether it is stopped in the middle of a transaction."""
        return self._broken is not None

    def crash(self) -> None:
        """It ends; the server notices that, and ends its transaction."""
        held = self._world.store.connection.held
        if self._broken is not None and held.get(FEED) is self._end:
            del held[FEED]

    def drain(self) -> None:
        """It gives back what it owns, and begins anew."""
        if self._owner is None or self._broken is not None or self.cut_off:
            return
        with suppress(Held):
            self._world.transact(self._owner.give_back)
            self._world.on_given_back(self._owner)
        self._owner = None
        self._detach()

    # --- steps --------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Whatever it does next."""
        self.cut_off = max(0, self.cut_off - 1)
        if self.stopped:
            self.stopped -= 1
            return
        broken, self._broken = self._broken, None
        try:
            if broken is not None:
                broken()
            elif self._world.random.random() < 0.3:
                self.look()
            elif self._is_held_up:
                self._is_held_up = False
                self.transact_blocking(lambda do: self._world.code.owners.make_way(do, FEED))
            elif self._owner is None:
                self._stand_by()
            elif self._world.random.random() < 0.3:
                self.transact_blocking(self._owner.renew)
                self._world.on_renewed(self._owner)
            elif self._world.topic.attached is not self or self._journal is None:
                self._attach()
            else:
                self._work()
        except Held:  # W-26: perhaps by a newer owner that has stopped
            self._detach()
            self._is_held_up = True
        except StoreUnreachable:
            self._detach()
        except (JournalOwnerError, self._world.code.owners.TakenOver):
            self._detach()
            self._owner = None
        except JournalError:
            self._detach()

    def _detach(self) -> None:
        self._journal = None

    def _stand_by(self) -> None:
        """W-26, as `TopicLink` does it."""
        owners = self._world.code.owners

        def look(do: Any) -> Any:
            return None if owners.lease_left(do, FEED) else owners.take_over(do, FEED, LEASE_S)

        if self._may_look:  # others may have taken it meanwhile
            self._may_look = False
            self._owner = self.transact_blocking(look)
            if self._owner is not None:
                self._world.newest = self
        else:
            self._may_look = not self.transact_blocking(lambda do: owners.make_way(do, FEED))

    def _attach(self) -> None:
        """J-16: what the map has as accepted is, and is not delivered again."""
        topic = self._world.topic
        journal = self._world.code.client_journals.FeedJournal(self, self._owner)
        known = {tag for tag, outcome in journal.open_subscriber("journal").entries if outcome is not None}
        topic.attached, self._journal = self, journal
        self._settled = sorted(known)
        for tag in sorted(known & set(topic.unsettled)):
            self._world.on_accepted(tag)
        self._ahead = list(topic.unsettled)

    def _work(self) -> None:
        some = self._ahead[: self._world.random.randint(1, 3)]
        messages = [NewMessage(encode_data_message(tag), 0, None) for tag in some]
        job = partial(self._world.code.log.append, name=NAME, messages=messages, source=TOPIC)
        work = partial(self._append, some, job)
        if some and not self._world.is_calm and self._world.random.random() < 0.05:
            self._stop_in(work)
        elif some or self._settled:
            self._append_in(work)

    def _append_in(self, work: Callable[[], None]) -> None:
        self._world.store.connection.mine = frozenset({FEED})
        try:
            work()
        finally:
            self._world.store.connection.mine = frozenset()

    def _append(self, some: list[bytes], job: Callable[[Any], Any]) -> None:
        journal, settled = self._journal, list(self._settled)
        journal.begin()
        if some:
            journal.add(job)
        entries = tuple((tag, ACCEPTED) for tag in some)
        journal.write_subscriber("journal", SubscriberChanges(1, entries, tuple(settled)))
        journal.commit()
        self._world.on_written(self, self._owner)
        self._ahead = self._ahead[len(some) :]
        self._settled = []
        topic = self._world.topic
        if topic.attached is self and self._world.random.random() < 0.1:
            topic.attached = None  # the link is lost before the outcomes have arrived
        if topic.attached is self:
            for tag in some:
                self._world.on_accepted(tag)
                self._settled.append(tag)

    def look(self) -> None:
        """CO-10, as `StoreShards` does it: what another one is to have ends first, then it is asked for anew."""
        claims = self._world.code.claims
        if self._leaving:
            shard = self._leaving.pop()
            owner, self.shards[shard] = self.shards[shard], None
            self.transact_blocking(lambda do: claims.leave(do, self.name, shard, owner))
            if owner is not None:
                self._world.on_given_back(owner)
            return
        found = self.transact_blocking(lambda do: claims.look(do, self.name, self.shards, LEASE_S))
        self.shards = {shard: found.owned.get(shard) for shard in self.shards}
        self._leaving = sorted(found.wanted_elsewhere)
        self._world.on_looked(self)


class OwnersWorld:
    """One run."""

    def __init__(self, code: Code, seed: int) -> None:
        self.random = Random(seed)
        self.code = code
        self.judge = Judge()
        self.store = OwnersStore()
        self.topic = SimTopic()
        self.faults = 0
        self.is_calm = False
        self._stored: list[int] = []
        self._leases: dict[str, tuple[int, float]] = {}
        self._moves = 0
        self.newest: SimProcess | None = None
        self.transact(lambda do: log.configure(do, NAME, JournalSettings()))
        self.processes = [SimProcess(self, f"p{number}") for number in range(self.random.randint(2, 3))]

    def transact(self, job: Callable[[Any], Any]) -> Any:
        """Run a job, and look at what it has changed."""
        result = self.store.transact(job)
        self._look()
        return result

    def run(self) -> int:
        """Faults for a while, then calm until all is done; returns the steps."""
        for step in range(STORM_STEPS + CALM_STEPS):
            if step == STORM_STEPS:
                self._calm()
            self.store.now += self.random.random()
            if not self.is_calm and self.random.random() < 0.03:
                self._fault()
            self.random.choice([each for each in self.processes if not each.is_gone]).step()
            if self.is_calm and self._is_done():
                self._judge_shares()
                self._judge_deleted()
                self.store.close()
                return step
        raise Violation(f"{len(self.topic.unsettled)} messages are not stored, or a shard has no owner")

    def _calm(self) -> None:
        """From now on nothing fails; machines of processes that stopped in a transaction may be gone."""
        self.is_calm = True
        for process in self.processes:
            process.is_gone = process.is_stopped_inside and self.random.random() < 0.7
        if all(process.is_gone for process in self.processes):
            self.processes[0].is_gone = False
        self.faults += sum(process.is_gone for process in self.processes)

    def _fault(self) -> None:
        process = self.random.choice(self.processes)
        kind = self.random.randrange(5)
        self.faults += 1
        if kind == 0:
            process.crash()
            self.processes[self.processes.index(process)] = SimProcess(self, f"{process.name}'")
        elif kind == 1:
            process.cut_off = self.random.choice((2, 40))
        elif kind == 2:
            process.stopped += self.random.choice((5, 60))
        elif kind == 3:
            process.drain()
        else:
            self.topic.attached = None

    # --- what must hold -----------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """W-26, J-28, CO-11: nobody loses what it holds a lease of; J-16, J-17: all messages once, in order."""
        now = self.store.time
        ended, self.store.connection.ended = self.store.connection.ended, set()
        if any(self._leases[name][1] > now for name in ended):
            raise Violation("the transaction of an owner was ended that holds its lease")
        for name, epoch, lease in self.store.rows("SELECT name, epoch, lease FROM oncewire_owners"):
            before, held_until = self._leases.get(name, (0, 0.0))
            if epoch != before and held_until > now:
                raise Violation(f"{name} was taken from an owner that holds its lease")
            self._leases[name] = (epoch, to_s(lease))
            self._moves += epoch != before
        found = self.store.peek(lambda do: log.read(do, NAME, len(self._stored), ALL, ALL))[1]
        self._stored += [int.from_bytes(_body(each.payload), "big") for each in found]
        if found and self._stored != [*range(1, len(self._stored) + 1)]:
            raise Violation(f"the journal has {self._stored[-4:]} at its end")

    def on_written(self, process: SimProcess, owner: Any) -> None:
        """J-28: only its newest owner writes."""
        if self._leases[FEED][0] != owner.epoch or process is not self.newest:
            raise Violation("a former owner has written")

    def on_renewed(self, owner: Any) -> None:
        """W-26: a renewal holds the lease."""
        if self._leases[owner.name][1] < self.store.time + LEASE_S - 0.01:
            raise Violation(f"{owner.name} was renewed until {self._leases[owner.name][1]}")

    def on_given_back(self, owner: Any) -> None:
        """W-26, CO-10: others can take it at once, if none has."""
        epoch, held_until = self._leases[owner.name]
        if epoch == owner.epoch and held_until > self.store.time:
            raise Violation(f"{owner.name} was given back, and its lease holds")

    def on_accepted(self, tag: bytes) -> None:
        """J-16: what is accepted is stored; the network settles it."""
        if int.from_bytes(tag, "big") > len(self._stored):
            raise Violation("a message is accepted, and not stored")
        if tag in self.topic.unsettled:
            self.topic.unsettled.remove(tag)
            self.judge.accepted.add(tag)

    def on_looked(self, process: SimProcess) -> None:
        """CO-11: who looks owns what it thinks, and holds the leases of it."""
        now = self.store.time
        for shard, owner in process.shards.items():
            if owner is not None and (self._leases[shard][0] != owner.epoch or self._leases[shard][1] <= now):
                raise Violation(f"{process.name} thinks that it owns {shard}")

    def _is_done(self) -> bool:
        open_maps = self.store.rows("SELECT count(*) FROM oncewire_feed_tags")[0][0]
        return not self.topic.unsettled and not open_maps and None not in self._holders().values()

    def _holders(self) -> dict[str, str | None]:
        """Who holds each shard."""
        now = self.store.time
        held = {
            (shard, owner.epoch): each.name for each in self.processes for shard, owner in each.shards.items() if owner
        }
        return {
            shard: held.get((shard, self._leases.get(shard, (0, 0.0))[0]))
            if self._leases.get(shard, (0, 0.0))[1] > now
            else None
            for shard in SHARDS
        }

    def _judge_shares(self) -> None:
        """CO-10: in calm they come to the same number but for one, and then nothing moves."""
        self._look_around(SETTLING_LOOKS)
        moves = self._moves
        self._look_around(EVEN_LOOKS)
        loads = Counter({each.name: 0 for each in self.processes if not each.is_gone})
        loads.update(holder for holder in self._holders().values() if holder is not None)
        if loads.total() != len(SHARDS) or max(loads.values()) - min(loads.values()) > 1:
            raise Violation(f"the shards are shared out as {dict(loads)}")
        if self._moves != moves:
            raise Violation("shards move though they are shared out evenly")

    def _look_around(self, looks: int) -> None:
        for _ in range(looks):
            self.store.now += 0.5
            for process in self.processes:
                if not process.is_gone:
                    process.cut_off = 0
                    process.look()

    def _judge_deleted(self) -> None:
        """J-27: nothing is left of a deleted journal, and one of its name is another one."""
        before = self.store.transact(lambda do: log.state(do, NAME))
        self.store.transact(lambda do: self.code.cursors.seek(do, NAME, "reader", Place.FIRST))
        self.store.transact(lambda do: self.code.log.delete(do, NAME))
        if self.store.peek(lambda do: log.find(do, NAME)) is not None:
            raise Violation("a deleted journal is there")
        if self.store.rows("SELECT count(*) FROM oncewire_journal_cursors")[0][0]:
            raise Violation("a deleted journal has left cursors")
        after = self.store.transact(lambda do: self.code.log.configure(do, NAME, JournalSettings()))
        if after.uuid == before.uuid or after.last or self.store.peek(lambda do: log.read(do, NAME, 0, ALL, ALL))[1]:
            raise Violation("a journal that was made again has what the one before had")


def _body(payload: bytes) -> bytes:
    body = decode_message(payload).body
    assert isinstance(body, bytes)
    return body
