"""The story of one seed, line by line: when, which step, who does what, and below it what the routers answered."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from chaos.campaign.tally import knobs
from chaos.simulator.cores import SHIPPED, Cores
from chaos.simulator.scenario import Scenario, replay, shorten
from chaos.simulator.schedule import Result, heal
from chaos.simulator.swarm import Setting

SHORTEN_S = 60.0
"""Wall-clock seconds a story may be shortened: most of the gain comes in the first few."""

_STEP = "- "
_PHRASES = {
    "p.connect": "p{0} attaches at r{1}",
    "p.send": "p{0} sends",
    "p.part": "p{0} sends the next part of a large message",
    "p.abort": "p{0} aborts the message that it is sending",
    "p.submit": "the application of p{0} gives it a message",
    "p.store": "p{0} begins a transaction of its journal",
    "p.stored": "p{0}'s transaction is durable",
    "s.connect": "s{0} attaches at r{1}",
    "s.process": "s{0} processes and accepts",
    "s.later": "s{0} processes its newest delivery",
    "s.early": "s{0} rejects what it has not read to its end",
    "s.reject": "s{0} rejects",
    "s.release": "s{0} releases",
    "s.fail": "s{0} answers modified, delivery-failed",
    "s.decline": "s{0} answers modified, undeliverable-here",
    "s.store": "s{0} begins a transaction",
    "s.stored": "s{0}'s transaction is durable",
    "c.recv": "the client of link {0} reads a frame",
    "c.lost": "the client of link {0} sees that its connection is lost",
    "r.recv": "the router of link {0} reads a frame, or the end of the connection",
    "r.frame": "a frame of router {0} is read by router {1}",
    "r.watch": "r{0} sees the next revision of etcd",
    "r.reply": "r{0} gets an answer of etcd",
    "r.restart": "r{0} starts again",
    "r.fence": "r{0} fences itself",
    "r.drained": "the last client of r{0} has disconnected, and it stops",
    "r.rejoin": "r{0} reaches etcd again",
    "k.lease": "the lease of router {0} runs out",
    "k.apply": "request {0} arrives at etcd",
    "k.together": "request {0} and those like it arrive at etcd in one transaction",
    "k.miss": "request {0} never arrives at etcd",
    "k.return": "etcd is back",
    "n.flow": "frames from r{0} to r{1} flow again",
    "n.heal": "the path from r{0} to r{1} works again",
    "n.end": "AMQP session {0} ends",
    "n.idle": "the idle time-out ends link {0}",
    "o.end": "an operator gives order {0} at r{1}: end the subscription he was shown",
    "o.expire": "an operator gives order {0} at r{1}: end the subscription shown, if it is disconnected",
    "wait": "{0} ms pass",
    "!crash": "FAULT: r{0} crashes",
    "!lose": "FAULT: what r{0} sent last is lost",
    "!drain": "r{0} drains, for {1} ms at most",
    "!leave": "r{0} stops in good order",
    "!blackout": "FAULT: all routers crash",
    "!stall": "FAULT: the event loop of r{0} stalls for {1} ms",
    "!freeze": "FAULT: the process of r{0} is stopped for {1} ms",
    "!isolate": "FAULT: r{0} is cut off from etcd",
    "!outage": "FAULT: etcd is unreachable for all routers",
    "!restore": "FAULT: etcd is restored from a backup that lacks {0} revisions",
    "!rollback": "FAULT: etcd's data of {0} revisions ago are put back, and nobody says so",
    "!reload": "operators take the dead-letter topic out of the rules of all routers",
    "!compact": "FAULT: etcd forgets its past",
    "!relist": "FAULT: the watch of r{0} breaks",
    "!reset": "FAULT: frames between r{0} and r{1} are lost",
    "!clog": "FAULT: frames from r{0} to r{1} stall",
    "!cut": "FAULT: frames from r{0} to r{1} are lost from now on",
    "!shed": "FAULT: frames with bodies from r{0} to r{1} are shed",
    "!twist": "FAULT: frames from r{0} to r{1} arrive in another order",
    "!double": "FAULT: frames from r{0} to r{1} arrive twice",
    "!drop-p": "FAULT: p{0} loses its connection",
    "!drop-s": "FAULT: s{0} loses its connection",
    "!trim-p": "FAULT: p{0} loses its connection; {1} frames under way arrive",
    "!trim-s": "FAULT: s{0} loses its connection; {1} frames under way arrive",
    "!quit-p": "FAULT: p{0} ends its link ({1}: detach, close, end of session, of connection), and waits",
    "!detach-p": "FAULT: p{0} detaches for {1} s and keeps its AMQP session",
    "!detach-s": "FAULT: s{0} detaches for {1} s and keeps its AMQP session",
    "!half-p": "FAULT: p{0} changes routers, its old connection stays half open",
    "!half-s": "FAULT: s{0} changes routers, its old connection stays half open",
    "!away-p": "FAULT: p{0} loses its connection and stays disconnected for {1} s",
    "!away-s": "FAULT: s{0} loses its connection and stays disconnected for {1} s",
    "!thief-p": "FAULT: a stranger attaches as p{0} at r{1}",
    "!thief-s": "FAULT: a stranger attaches as s{0} at r{1}",
    "!expire-s": "FAULT: the subscription of s{0} expires",
    "!expire-p": "FAULT: the session of p{0} expires",
    "!crash-p": "FAULT: p{0} crashes",
    "!die-p": "FAULT: p{0} is killed for good, and its session is kept",
    "!crash-s": "FAULT: s{0} crashes",
    "!pause-p": "FAULT: the process of p{0} is paused, and another one takes its journal over",
    "p.wake": "the process of p{0} that was paused continues, and attaches at r{1}",
    "!torn-p": "FAULT: p{0} crashes and keeps its journal",
    "!torn-s": "FAULT: s{0} crashes and keeps its journal",
    "!early-p": "p{0} settles a delivery before it has an outcome",
    "!close-p": "p{0} closes its link",
    "!close-s": "s{0} unsubscribes",
    "!renew-s": "s{0} unsubscribes and subscribes again under the same name",
    "!retopic-s": "s{0} attaches again with the topic of p{1}",
    "!refilter-s": "s{0} attaches again with filter {1} of FILTERS",
    "!end-s": "an operator is shown the subscription of s{0} by r{1}",
}
"""What each step of `chaos.simulator.actions` means."""


@dataclass(frozen=True, slots=True)
class Story:
    """A seed's run, as text."""

    head: tuple[str, ...]
    lines: tuple[str, ...]
    violation: str | None
    """What this run broke; for a shortened one the same kind of thing as the whole."""


def story_of(result: Result, cores: Cores = SHIPPED) -> Story:
    """The whole run of a seed."""
    return _replayed(result, Scenario(result.setting, tuple(result.story)), cores)


def shortened_story_of(result: Result, cores: Cores = SHIPPED, seconds: float = SHORTEN_S) -> Story:
    """The run of a failing seed without the steps that do not matter; what follows without faults is left out.

    Args:
        result: must have a violation.
        cores: those that broke it.
        seconds: how long to try.
    """
    assert result.violation is not None
    ends_at = time.monotonic() + seconds
    kind = result.violation.partition(":")[0]
    scenario = Scenario(result.setting, tuple(result.story))
    if (replay(scenario, cores).violation or "").startswith(kind):
        scenario = shorten(scenario, cores, kind, lambda: time.monotonic() < ends_at)
    if not scenario.steps:  # it breaks without any fault
        scenario = _undisturbed(result.setting, cores)
    return _replayed(result, scenario, cores)


def _undisturbed(setting: Setting, cores: Cores) -> Scenario:
    world = setting.build(cores)
    with suppress(Exception):  # whatever it breaks is shown by the replay
        heal(world, random.Random(0))
    return Scenario(setting, tuple(world.story))


def _replayed(result: Result, scenario: Scenario, cores: Cores) -> Story:
    verdict = replay(scenario, cores)
    length, whole = len(scenario.steps), len(result.story)
    steps = f"{whole} steps" if length == whole else f"{length} steps, shortened from {whole}"
    head: tuple[str, ...] = (f"seed {result.seed}: {steps}", f"drawn: {knobs(result.setting)}")
    if length < whole:
        head = (*head, "what follows these steps, when the faults have stopped, is left out")
    return Story(head, tuple(_lines(verdict.story)), verdict.violation)


def _lines(story: tuple[str, ...]) -> Iterator[str]:
    """A replay's story with the time and a phrase for each step."""
    now_ms = 0
    for line in story:
        if not line.startswith(_STEP):
            yield f"{'':12}{line}"
            continue
        step = line.removeprefix(_STEP)
        verb, *arguments = step.split()
        if verb == "wait":
            now_ms += int(arguments[0])
        yield f"{now_ms / 1000:9.3f} s  {step:<20} {_phrase(verb, arguments)}".rstrip()


def _phrase(verb: str, arguments: list[str]) -> str:
    return _PHRASES[verb].format(*arguments)
