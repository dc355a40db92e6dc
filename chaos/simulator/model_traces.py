"""Traces of the reference model, followed step by step with the real cores.

A trace is a list of the model's actions (docs/counterexamples.md, "Steps"). Each is carried out by the steps of
the world that stand for it, in the same order: the same sends, crashes, drops, watch events and readings of
frames. The two differ in grain, so one action may be several steps or none:

- The model attaches in one action, the code reads and then puts: answers of etcd are taken at once.
- The model's barrier sees its peers' applied revision, the code asks for it: HELLO, BARRIER and APPLIED at the head of
  a channel are read at once.
- The model's subscriber has credit by itself, the code's client sends flows: these are read at once.
- The model's client takes one message, the code's may get two for it (reply and challenge, reply and confirmation).
- A client that attaches again at a router where it was takes the place of what it had under way there; in the code
  these bytes are read when everything heals.
- A subscriber processes what it receives at once, unless the trace is split.
- The code sends frames to a router that the model sends to a subscription, and joins acceptances of one turn.

An action for which nothing is there is passed over. A trace ends as every schedule does: heal, and the judge.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from chaos.simulator.connections import Connection
from chaos.simulator.cores import SHIPPED, Cores
from chaos.simulator.model_configurations import NO_LIMIT, Configuration, Link
from chaos.simulator.model_runs import attach, wait_for_deadline
from chaos.simulator.schedule import heal
from chaos.simulator.steps import Choice
from chaos.simulator.traits import Traits
from chaos.simulator.violation import Violation
from chaos.simulator.world import AnyPublisher, AnySubscriber
from delivery_records import effects, inputs
from delivery_records.peer_messages import Ack, Msg, Nack, Settle, Sync

_TO_PUBLISHER = (
    effects.AskEcho,
    effects.GrantCredit,
    effects.Dispose,
    effects.Detach,
    effects.CloseConnection,
)
_TO_SUBSCRIBER = (
    effects.SubscriberReply, effects.Deliver, effects.SettleAtSubscriber, effects.Detach, effects.CloseConnection
)  # fmt: skip
_ABOUT_RECORDS = (Sync, Msg, Settle, Ack, Nack)
"""What the model's routers send each other; the rest is the channel's own."""
_BARRIER_STEPS = 20
"""More than a barrier of three routers takes."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace of the model, as one text file holds it."""

    title: str
    configuration: Configuration
    split: bool
    """Receiving and processing are two actions."""
    violation: str
    """What the model found without the rule: the first word of it."""
    edit: str
    """The edit of the code that takes the rule out; "" when there is none."""
    broken: str
    """What the real core with the edit does on this trace; "" when it ends well all the same."""
    actions: tuple[tuple[str, ...], ...]


def read_trace(text: str) -> Trace:
    """A trace as it stands in a file of tests/chaos/model_schedules: title, head, and one action in each line."""
    lines = text.splitlines()
    title = "\n".join(line.removeprefix("#").strip() for line in lines if line.startswith("#"))
    told = [line for line in lines if line and not line.startswith("#")]
    head = dict(line.split(": ", 1) for line in told if ": " in line)
    actions = tuple(tuple(line.split()) for line in told if ": " not in line)
    size = {key: int(value) for key, value in (part.split("=") for part in head["world"].split())}
    links = [part.partition("@") for part in head.get("attached", "").split()]
    split = bool(size.pop("split", 0))
    configuration = Configuration(
        title.splitlines()[0], size["routers"], size["publishers"], size["subscribers"], size["messages"],
        size["window"], tuple(Link(client[0], int(client[1:]), int(router)) for client, _, router in links),
        prefetch=size.get("prefetch", NO_LIMIT),
        traits=Traits(
            pipelines=bool(size.get("pipelines", 0)), abandons=bool(size.get("abandons", 0)),
            never=bool(size.get("never", 0)), timeout_s=size.get("timeout_s", 45),
        ),
    )  # fmt: skip
    return Trace(
        title, configuration, split, head["the model without the rule"], head.get("edit", ""),
        head.get("the code without the rule", ""), actions,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Followed:
    """How a trace ended on real cores."""

    violation: str | None
    steps: tuple[Choice, ...]
    """Of the world, up to healing or up to the violation."""
    passed_over: tuple[tuple[str, ...], ...]
    """Actions for which nothing was there."""


def follow(trace: Trace, cores: Cores = SHIPPED, healing_seed: int = 0) -> Followed:
    """Carry a trace out, heal, judge.

    Args:
        trace: what happens.
        cores: shipped ones, or with a rule edited out.
        healing_seed: the order in which everything heals; a record that nobody needs may be swept away in some.
    """
    follower = _Follower(trace, cores)
    world = follower.world
    passed_over: list[tuple[str, ...]] = []
    violation: str | None = None
    length: int | None = None
    try:
        attach(world, trace.configuration)
        passed_over += (action for action in trace.actions if not follower.take(action))
        length = len(world.story)
        heal(world, random.Random(healing_seed))
    except Violation as broken:
        violation = str(broken)
    except AssertionError as broken:
        violation = f"BROKEN: {type(broken).__name__} {broken}"
    return Followed(violation, tuple(world.story[:length]), tuple(passed_over))


class _Follower:
    """Finds the steps that stand for an action."""

    def __init__(self, trace: Trace, cores: Cores) -> None:
        self.world = trace.configuration.setting.build(cores)
        self._split = trace.split

    def take(self, action: tuple[str, ...]) -> bool:
        """One action; False when there is nothing that it could stand for."""
        verb, arguments = action[0], [int(part) for part in action[1:]]
        found = MEANING[verb](self, *arguments)
        self._read_at_once()
        return found

    def do(self, *choice: str | int) -> bool:
        """One step of the world, if it is possible."""
        verb, arguments = str(choice[0]), [int(part) for part in choice[1:]]
        step: Choice = (verb, arguments[0], arguments[1]) if len(arguments) > 1 else (verb, arguments[0])
        if verb.startswith("!") or step in self.world.choices():
            self.world.do(step)
            return True
        return False

    def _read_at_once(self) -> None:
        """Answers of etcd, flows of subscribers, and what a channel says for itself."""
        found: Choice | None = ("wait", 0)
        while found is not None:
            found = next((choice for choice in self.world.choices() if self._is_at_once(choice)), None)
            if found is not None:
                self.world.do(found)

    def _is_at_once(self, choice: Choice) -> bool:
        if choice[0] == "r.reply":
            return True
        if choice[0] == "r.frame":
            head = self.world.frames[int(choice[1]), int(choice[2])][0]  # type: ignore[misc]  # two numbers
            return isinstance(head, inputs.PeerDatagram)
        if choice[0] == "r.recv":
            connection = self.world.connections[int(choice[1])]
            return connection.is_open and bool(connection.up) and self._is_flow_of_subscriber(connection)
        return False

    def _is_flow_of_subscriber(self, connection: Connection) -> bool:
        head = connection.up[0]
        return isinstance(head, inputs.LinkFlow) and any(
            s.connection is connection for s in self.world.subscribers
        )

    # ------------------------------------------------------------------ actions

    def client_takes(self, client: AnyPublisher | AnySubscriber, wanted: tuple[type, ...]) -> bool:
        """One message of the model, with the small ones around it."""
        connection = client.connection
        found = False
        while connection is not None and connection.is_open and connection.down and not found:
            found = isinstance(connection.down[0], wanted)
            self.do("c.recv", connection.link)
        while connection is not None and connection.down and isinstance(connection.down[0], effects.Confirm):
            self.do("c.recv", connection.link)
        return found

    def publisher_takes(self, index: int) -> bool:
        """P.recv: the reply with its challenge, credit, an outcome, or the end."""
        return self.client_takes(self.world.publishers[index], _TO_PUBLISHER)

    def publisher_sends(self, index: int) -> bool:
        """P.send: credit that was granted meanwhile is known."""
        publisher = self.world.publishers[index]
        connection = publisher.connection
        while (
            connection is not None and connection.down and isinstance(connection.down[0], effects.GrantCredit)
        ):
            self.do("c.recv", connection.link)
        return self.do("p.send", index)

    def subscriber_takes(self, index: int) -> bool:
        """S.recv: the reply, a delivery, a settlement, or the end."""
        found = self.client_takes(self.world.subscribers[index], _TO_SUBSCRIBER)
        if found and not self._split:
            while self.do("s.process", index):
                pass
        return found

    def subscriber_processes(self, index: int, *_: int) -> bool:
        """S.process."""
        return self.do("s.process", index)

    def router_reads(self, kind: str, router: int, index: int) -> bool:
        """R.recvP, R.recvS: one frame of a client's last connection here, also when it is dead."""
        first = (10_000 if kind == "p" else 20_000) + 100 * index
        links = [
            link for link, connection in self.world.connections.items()
            if first < link < first + 100 and connection.router == router
        ]  # fmt: skip
        return bool(links) and bool(self.world.connections[links[-1]].up) and self.do("r.recv", links[-1])

    def router_hears(self, router: int, sender: int) -> bool:
        """R.recvR: one message about records."""
        pair = self.world.routers[sender].rid, self.world.routers[router].rid
        under_way = self.world.frames.get(pair)
        while under_way:
            head = under_way[0]
            if not self.do("r.frame", *pair):
                return False
            if isinstance(head, inputs.PeerFrame) and isinstance(head.message, _ABOUT_RECORDS):
                return True
            self._read_at_once()
        return False

    def confirm(self, _: int, index: int) -> bool:
        """R.confirm: the barrier takes its course; the confirmation arrives if nothing is in front of it."""
        subscriber = self.world.subscribers[index]
        for _step in range(_BARRIER_STEPS):
            self._read_at_once()
            connection = subscriber.connection
            if connection is not None and any(isinstance(m, effects.Confirm) for m in connection.down):
                while connection.down and isinstance(
                    connection.down[0], (effects.SubscriberReply, effects.Confirm)
                ):
                    self.do("c.recv", connection.link)
                return True
            if not wait_for_deadline(self.world):
                return False
        return False

    def end_lease(self, router: int, incarnation: int) -> bool:
        """K.lease."""
        return self.do("k.lease", 100 * (router + 1) + incarnation)

    def crash(self, router: int, loses: int = 0) -> bool:
        """!crash, with what the router had under way or without."""
        if self.world.routers[router].records is None:
            return False
        if loses:
            self.do("!lose", router)
        return self.do("!crash", router)

    def fault_at_client(self, verb: str, index: int) -> bool:
        """A fault of one client, which must have a link for it."""
        client = (self.world.publishers if verb.endswith("-p") else self.world.subscribers)[index]
        return (client.connection is not None or "crash" in verb or "expire" in verb) and self.do(verb, index)


MEANING: dict[str, Callable[..., bool]] = {
    "P.connect": lambda f, p, r: f.do("p.connect", p, r),
    "P.send": _Follower.publisher_sends,
    "P.recv": _Follower.publisher_takes,
    "P.settle": lambda _, *__: True,
    "S.connect": lambda f, s, r: f.do("s.connect", s, r),
    "S.recv": _Follower.subscriber_takes,
    "S.process": _Follower.subscriber_processes,
    "R.recvP": lambda f, r, p: f.router_reads("p", r, p),
    "R.recvS": lambda f, r, s: f.router_reads("s", r, s),
    "R.recvR": _Follower.router_hears,
    "R.watch": lambda f, r: f.do("r.watch", r),
    "R.confirm": _Follower.confirm,
    "R.fence": lambda f, r: f.do("r.fence", r),
    "R.restart": lambda f, r: f.do("r.restart", r),
    "K.lease": _Follower.end_lease,
    "!crash": _Follower.crash,
    "!iso": lambda f, r: f.do("!isolate", r),
    "!reset": lambda f, one, other: f.do("!reset", one, other),
    "!dropP": lambda f, p: f.fault_at_client("!drop-p", p),
    "!dropS": lambda f, s: f.fault_at_client("!drop-s", s),
    "!expP": lambda f, p: f.fault_at_client("!expire-p", p),
    "!expS": lambda f, s: f.fault_at_client("!expire-s", s),
    "!pcrash": lambda f, p: f.fault_at_client("!crash-p", p),
    "!scrash": lambda f, s: f.fault_at_client("!crash-s", s),
    "!closeS": lambda f, s: f.fault_at_client("!close-s", s),
}
"""The model's actions. `R.heal` and `K.reap` are missing: docs/model-and-code.md says why."""
