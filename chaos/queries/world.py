"""One seeded run: a bridge node, or two that share a subscription out, and a query; faults, then calm (J-1 to J-15)."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from random import Random
from typing import Any

from bridges.node.errors import BadRequest, NodeError, OwnedByAnother, RangeTrimmed, SubscriptionEnded, SubscriptionGap
from chaos.queries.code import Code
from chaos.queries.network import Network
from chaos.queries.query import Query, body_of
from chaos.queries.sim_node import SUB, Crash, SimNode
from chaos.quiet import without_logs
from chaos.routed.judge import Judge, Violation
from oncewire.client.isolation import Isolation

STORM_STEPS = 90
CALM_STEPS = 200
FULL_BYTES = 3_000
STEP_S = 10.0
UNREAD_S = 150.0
AT_MOST_ONCE_S = 1e9
MEMORY = Path("/dev/shm")  # noqa: S108  (files that need no disk, in a folder of their own)


class Subject(Enum):
    """What a run is about beside crashes of node and driver, and lost files of the checkpoint."""

    ONE_QUERY = 0
    USERS = 1
    LOGINS = 2
    TRANSACTIONS = 3
    FULL = 4
    DELETED = 5
    SHARDS = 6
    AT_MOST_ONCE = 7
    RIVALS = 8
    UNREAD = 9


class QueryWorld:
    """One run; see `chaos.routed.world.Run`."""

    def __init__(self, code: Code, seed: int) -> None:
        self.code = code
        self.random = Random(seed)
        self.subject = list(Subject)[seed % len(Subject)]
        self.judge = Judge()
        self.faults = 0
        self.is_calm = False
        self._passed = 1
        self._dropped: set[bytes] = set()
        self._earlier: set[bytes] = set()
        self._queries = 0
        self._is_full = False

    @without_logs()
    def run(self) -> int:
        """See Run."""
        with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None, prefix="oncewire-") as folder:
            self._build(Path(folder))
            try:
                return self._run()
            finally:
                for node in self.nodes:
                    node.crash()

    def _build(self, folder: Path) -> None:
        users = {Subject.USERS: ("ann", "bob"), Subject.LOGINS: ("ann",)}.get(self.subject, ("",))
        count = 2 if self.subject is Subject.SHARDS else 1
        is_committed = self.subject is Subject.TRANSACTIONS
        self.network = Network(
            self.random, count, users, has_transactions=is_committed, has_logins=self.subject is not Subject.LOGINS
        )
        self.nodes = []
        for number in range(count):
            (path := folder / str(number)).mkdir()
            terms: dict[str, Any] = {}
            if self.subject is Subject.SHARDS:
                terms["shard"] = self.code.shard_core.Shard(number, count)
            if is_committed:
                terms["isolation"] = Isolation.READ_COMMITTED
            if self.subject is Subject.FULL:
                terms["max_journal_bytes"] = FULL_BYTES
            if self.subject is Subject.AT_MOST_ONCE:
                terms["retention_s"] = AT_MOST_ONCE_S
            self.nodes.append(
                SimNode(
                    self.code, path, self.network.links[number], self.network, terms, lambda p: self.random.random() < p
                )
            )
        self.node = self.nodes[0]
        if self.subject is not Subject.SHARDS:
            self.query = self._new_query()

    def _new_query(self) -> Query:
        self._queries += 1
        more = {"maxOffsetsPerTrigger": str(self.random.randint(1, 5))}
        if self.subject is Subject.AT_MOST_ONCE:
            more["deliveryGuarantee"] = "at-most-once"
        if self._queries == 1:
            more["startingOffsets"] = self.random.choice(("earliest", "latest"))
        query = Query(self.code, self.node, f"query-{self._queries}", **more)
        if self.subject is Subject.UNREAD:
            query.between = lambda: None if self.is_calm or self.random.random() < 0.5 else self._drop()
        return query

    def _run(self) -> int:
        if self.subject is not Subject.SHARDS:  # the subscription begins where the query does
            self.query.planner.initial()
        for step in range(STORM_STEPS):
            self._tick()
            self._step()
            if step == STORM_STEPS // 2:
                self.network.has_logins = True
        self.is_calm = True
        for node in self.nodes:
            node.is_calm = True
        for step in range(CALM_STEPS):
            if self._calm_step():
                self._judge_end()
                return STORM_STEPS + step
        raise Violation(f"{len(self.node.link.unsettled)} messages are not accepted, or not read")

    def _tick(self) -> None:
        for node in self.nodes:
            node.clock.now += STEP_S

    # --- steps --------------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        found = self.random.random()
        if found < 0.3:
            self.network.publish()
        elif found < 0.65:
            self._take(self.random.choice(self.nodes), self.random.randint(1, 6))
        elif found < 0.9:
            self._query()
        else:
            self.faults += 1
            self._fault()

    def _calm_step(self) -> bool:
        """Whether all is done."""
        for node in self.nodes:
            if node.receiver is None and self.subject is Subject.DELETED:
                self.query.start_over()
                self.query.planner.received_topics()
            while self._take(node, 100):
                pass
        return not self._query() and not any(node.link.unsettled for node in self.nodes)

    def _take(self, node: SimNode, count: int) -> bool:
        before = node.receiver._reader.marks().live_bytes if node.receiver is not None else 0
        try:
            is_taken = node.take(count)
        except Crash:
            self._restart(node)
            return True
        if is_taken and self.subject is Subject.FULL and before >= FULL_BYTES:
            raise Violation(f"J-11: a journal of {before} bytes takes more")
        return is_taken

    def _restart(self, node: SimNode) -> None:
        node.crash()
        node.begin()
        if self.subject is not Subject.SHARDS:
            self.query.start_over()

    def _query(self) -> bool:
        """One batch, or a part of it; whether there was one."""
        if self.subject is Subject.SHARDS or (self.subject is Subject.UNREAD and self._rests()):
            return False
        try:
            if not self.query.plan():
                return False
            self._run_batch()
        except Crash:
            self._restart(self.node)
        except SubscriptionEnded:
            if not self.node.ended:
                raise Violation("the query fails for an ended subscription that has not ended") from None
            self.query.start_over()
        except (SubscriptionGap, RangeTrimmed) as error:
            return self._pass_over(error)
        except NodeError as error:
            raise Violation(f"{self.query.name}: {type(error).__name__}: {error}") from error
        return True

    def _rests(self) -> bool:
        return not self.is_calm and self.random.random() < 0.9

    def _run_batch(self) -> None:
        query, again = self.query, False
        if not self.is_calm and self.random.random() < 0.2:
            query.handed_out += query.run(self.random.randint(1, 3))
            if query.committed == len(query.log):
                return
            again = self.random.random() < 0.5
            if not again:
                query.start_over()
        rows = query.run(again=again)
        query.handed_out += rows
        self._look(rows)

    def _pass_over(self, error: NodeError) -> bool:
        """J-8, J-15: the query has failed where messages are missing; its operator lets it go on. Whether it did."""
        if isinstance(error, SubscriptionGap) and self.subject is not Subject.DELETED:
            raise Violation(f"the query fails at a gap that is none: {error}")
        if isinstance(error, RangeTrimmed) and not self._dropped:
            raise Violation(f"the query fails, and nothing was dropped: {error}")
        query = self.query
        query.passes_gaps = True
        query.start_over()
        is_passed = False
        try:
            if is_passed := query.plan():
                rows = query.run()
                self._passed = max([self._passed, *(self._incarnation_of(row) for row in rows)])
        except SubscriptionEnded:
            pass
        except Crash:
            self._restart(self.node)
        query.passes_gaps = False
        query.start_over()
        return is_passed

    def _look(self, rows: list[bytes]) -> None:
        """J-8: no batch passes missing messages silently."""
        for row in rows:
            found = self._incarnation_of(row)
            if found > self._passed and any(self._passed < gap <= found for gap in self.node.gaps):
                raise Violation(f"J-8: {self.query.name} reads {row!r}, and does not learn what is missing before it")

    def _incarnation_of(self, body: bytes) -> int:
        return next((sent.incarnation for sent in self.node.accepted if sent.body == body), 0)

    # --- faults -------------------------------------------------------------------------------------------------------

    def _fault(self) -> None:
        special: dict[Subject, Callable[[], None]] = {
            Subject.DELETED: self._delete,
            Subject.SHARDS: self._swap_shares,
            Subject.RIVALS: self._rival,
            Subject.UNREAD: self._drop,
        }
        if self.subject in special and self.random.random() < 0.6:
            special[self.subject]()
        elif self.subject is Subject.SHARDS or self.random.random() < 0.5:
            self._restart(self.random.choice(self.nodes))
        elif self.subject is not Subject.UNREAD:
            self.query.lose_log(self.random.randint(1, 2))

    def _delete(self) -> None:
        """J-14: an operator deletes the subscription, or the network does while the node is disconnected."""
        if self.random.random() < 0.5:
            self.node.operator_deletes()
        else:
            self.node.crash()
            self.network.delete(self.node.link)
            self.network.publish()
            self.node.begin()
            self.query.start_over()
        if self.random.random() < 0.5:
            self._restart(self.node)

    def _swap_shares(self) -> None:
        """J-9: a journal has its share for good."""
        node = self.random.choice(self.nodes)
        node.crash()
        try:
            node.begin_with(shard=self.code.shard_core.Shard(1 - self.nodes.index(node), 2))
        except BadRequest:
            node.begin()
            return
        raise Violation("J-9: a journal has taken another share")

    def _rival(self) -> None:
        """J-6: another query, or one whose subscription was given to another one."""
        api = self.node.api
        former = self.query
        if api.offsets(SUB).owner != former.name:
            return
        if self.random.random() < 0.5:
            api.release(SUB)
            self._earlier.update(former.rows)
            self.query = self._new_query()
            if self.random.random() < 0.5 and not self._query():
                return
        else:
            former = self._new_query()
        try:
            found = former.run() if former.plan() else []
        except (OwnedByAnother, RangeTrimmed, BadRequest):
            return
        if found:
            raise Violation(f"J-6: {former.name} has read {found}, and the subscription is {self.query.name}'s")

    def _drop(self) -> None:
        """J-15: what nobody has processed for some time is deleted, and nothing else."""
        if not self.query.committed:
            return
        self.node.clock.now += self.random.choice((0.0, UNREAD_S))
        storage, limit = self.node.api._files, self.node.clock.now - UNREAD_S
        before = storage.journal(SUB).marks()
        kept = [
            (chunk.first + index, us / 1e6, payload)
            for chunk in storage.read(SUB, before.deleted, before.last, uuid=None, query=None)
            for index, (us, payload) in enumerate(zip(chunk.arrived, chunk.payloads, strict=True))
        ]
        storage.journal(SUB).drop_unread(limit)
        storage.delete_expired(SUB)
        trimmed = storage.journal(SUB).marks().trimmed
        for position, at, payload in kept:
            if before.trimmed < position <= trimmed:
                self._dropped.add(body_of(payload))
                if at > limit:
                    raise Violation(
                        f"J-15: position {position} was dropped, and it is {self.node.clock.now - at} s old"
                    )
            elif position > trimmed and at <= limit:
                raise Violation(f"J-15: position {position} is kept, and it is {self.node.clock.now - at} s old")

    # --- the end ------------------------------------------------------------------------------------------------------

    def _judge_end(self) -> None:
        """G1 to G4 at the reader."""
        rows = self._rows_of_nodes() if self.subject is Subject.SHARDS else self._bodies(self.query.rows)
        self.judge.accepted.update(sent.body for node in self.nodes for sent in node.accepted)
        if self.subject is Subject.AT_MOST_ONCE:
            twice = [row for row, count in Counter(self._bodies(self.query.handed_out)).items() if count > 1]
            if twice:
                raise Violation(f"J-10: handed out twice: {twice[:3]}")
            return
        twice = [row for row, count in Counter(rows).items() if count > 1]
        if twice:
            raise Violation(f"G2: read twice: {twice[:3]}")
        wanted = {body for body in self.judge.accepted if body in self.network.counting}
        lost = wanted - set(rows) - self._earlier - self._dropped
        if lost:
            raise Violation(f"G1: accepted, and not read: {sorted(lost)[:3]}")
        if early := self.network.never & set(rows):
            raise Violation(f"J-12: read, and rolled back: {sorted(early)[:3]}")
        self._judge_order(rows)

    def _judge_order(self, rows: list[bytes]) -> None:
        if self.subject is Subject.TRANSACTIONS:
            connection = self.node.receiver._client_journal.connection
            if connection.execute("SELECT count(*) FROM node_waiting").fetchone()[0]:
                raise Violation("J-12: the waiting room has what nobody decides any more")
        elif self.subject is not Subject.SHARDS:
            came = list(dict.fromkeys(sent.body for sent in self.node.accepted))
            there = set(rows)
            if [body for body in came if body in there] != [row for row in rows if row in set(came)]:
                raise Violation("G3: messages are read in another order than they came")

    def _bodies(self, rows: list[bytes]) -> list[bytes]:
        return [row for row in rows if row]

    def _rows_of_nodes(self) -> list[bytes]:
        found = []
        for node in self.nodes:
            storage = node.api._files
            marks = storage.journal(SUB).marks()
            for chunk in storage.read(SUB, marks.deleted, marks.last, uuid=None, query=None):
                found += [body_of(payload) for payload in chunk.payloads]
        return found
