"""One run of the demo: start a network and clients, strike three routers under load, judge."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from chaos.clients.client_plan import PublisherPlan, SubscriberPlan, open_gate
from chaos.clients.client_process import ClientFailed
from chaos.clients.flights import DataSetError, rows_of
from chaos.clients.layout import Load, lay_out
from chaos.experiments.demo import MIN_MESSAGES
from chaos.experiments.demo.report import DemoResult
from chaos.experiments.progress import DemoProgress
from chaos.network.faults import costs_of
from chaos.network.network_state import RouterState
from chaos.network.strikes import Strikes
from chaos.network.trial import Trial, TrialFailed
from delivery_records.model.topics import matches
from router.commands.local_network import LocalNetwork, LocalNetworkError
from topology.etcd.store import StoreError

TOPICS = {"odd": "demo/odd", "even": "demo/even"}
"""Each publisher's name, with its topic: odd rows of the source, and even ones."""
SUBSCRIPTIONS = {
    "odd-1": "demo/odd",
    "odd-2": "demo/odd",
    "even-1": "demo/even",
    "even-2": "demo/even",
    "all": "demo/*",
}
"""Each subscriber's name, with the topic or pattern it subscribes to."""
UNSETTLED_AT_FAULT = 100
"""Deliveries that must be unsettled through a router when it is struck."""
STRIKE_AFTER = (0.08, 0.36, 0.66)
"""Parts of the source published before the first, second and third strike: the load goes on around each."""
LOAD_AHEAD = 0.08
"""Publishers stop so far behind the part that the next strike waits for, until it comes: on a slow machine a strike can
take longer than the whole load, and the next one must find enough that is not published."""
LOAD_S = 18.0
"""The publishers' rate spreads the source over this time; faults make it longer."""
WINDOW = 512
"""Unsettled messages of a publisher: it goes on for half a second while nothing is accepted."""
BATCH = 100
BATCH_S = 0.5
"""Subscribers process like a program that commits 100 rows at a time: so deliveries are unsettled at any instant."""
SETTINGS = {"etcd.lease_ttl_s": "5"}
"""A stopped router is fenced after 3.3 s and its lease ends after 5 s: fit for watching."""
RESTART_AFTER_S = 2.0
"""From SIGKILL to the start of the new incarnation."""
FINISH_TIMEOUT_S = 120.0
"""From the last strike to the last acceptance, on the slowest machine; the full data set adds its own time."""
SECONDS_PER_MESSAGE = 0.01


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What to run."""

    messages: int
    routers: int
    seed: int
    file: Path | None = None
    keep: Path | None = None
    """Folder for journals and logs; None: a temporary one, which is removed."""


async def run_demo(options: DemoOptions, console: Console) -> DemoResult:
    """Run the demo once; leaves no process behind, and no file unless they are to be kept.

    Raises:
        DataSetError: the source cannot be read, or is too short for `options.messages`.
        LocalNetworkError, EtcdNotFound, EtcdFailed: the network cannot be started.
    """
    await asyncio.to_thread(check_source, options)
    if options.keep is not None:
        return await _run_in(options.keep, options, console)
    with TemporaryDirectory(prefix="oncewire-demo-") as folder:
        return await _run_in(Path(folder), options, console)


def check_source(options: DemoOptions) -> None:
    """Raise DataSetError when the source cannot be read or has fewer rows than messages were asked for."""
    rows = sum(1 for _ in rows_of(options.file, options.messages)())
    if rows < options.messages:
        raise DataSetError(
            f"{options.messages} messages cannot be sent",
            f"{options.file or 'the data set'} has only {rows} rows",
            f"give fewer --messages ({MIN_MESSAGES} at least) or a longer --file",
        )


async def _run_in(folder: Path, options: DemoOptions, console: Console) -> DemoResult:
    began = time.monotonic()
    network = LocalNetwork(options.routers, settings=SETTINGS, log_folder=folder)
    with DemoProgress(console) as progress:
        async with network:
            assert network.etcd is not None
            etcd = network.etcd.description
            progress.say(f"{etcd}, pid {network.etcd.pid}")
            for router in network.routers.values():
                progress.say(f"router {router.id} at {router.url}, pid {router.pid}")
            return await _run_trial(network, folder, options, progress, began=began, etcd=etcd)


async def _run_trial(
    network: LocalNetwork, folder: Path, options: DemoOptions, progress: DemoProgress, *, began: float, etcd: str
) -> DemoResult:
    problems: list[str] = []
    async with Trial(network, folder, *plans(network, folder, options)) as trial:
        shares = {name: len(range(index, options.messages, len(TOPICS))) for index, name in enumerate(TOPICS)}
        for name, publisher in trial.publishers.items():
            progress.follow(publisher, "accepted", shares[name])
        for name, subscriber in trial.subscribers.items():
            topics = [each for each, topic in TOPICS.items() if matches(SUBSCRIPTIONS[name], topic)]
            progress.follow(subscriber, "processed", sum(shares[each] for each in topics))
        trial.on_look = progress.show
        strikes = Strikes(trial)
        gate = _Gate(folder, options.messages)
        start = time.monotonic()
        try:
            await trial.start()
            start = time.monotonic()
            await strike_three(trial, strikes, gate, options, progress.say)
            await trial.finish(patience_s(options))
        except (TrialFailed, ClientFailed, LocalNetworkError, StoreError) as failure:
            problems.append(str(failure))
        await asyncio.gather(*(client.kill() for client in trial.clients))
        verdict = await asyncio.to_thread(trial.verdict)
        faults = costs_of(strikes.faults, verdict.gaps)
        return DemoResult(verdict, faults, start, time.monotonic() - began, etcd, problems)


def plans(
    network: LocalNetwork, folder: Path, options: DemoOptions
) -> tuple[list[PublisherPlan], list[SubscriberPlan]]:
    """Lay out the clients: each prefers another router, and tries the others in an order of its own."""
    load = Load(
        publishers=TOPICS,
        subscribers=SUBSCRIPTIONS,
        rows=options.messages,
        rate=options.messages / len(TOPICS) / LOAD_S,
        window=WINDOW,
        batch=BATCH,
        batch_s=BATCH_S,
        file=None if options.file is None else str(options.file),
    )
    urls = [router.url for router in network.routers.values()]
    publishers, subscribers = lay_out(load, urls, folder, random.Random(options.seed))
    gate = str(_Gate(folder, options.messages).file)
    return [replace(publisher, gate=gate) for publisher in publishers], subscribers


class _Gate:
    """How far the publishers may go before the next strike."""

    def __init__(self, folder: Path, messages: int) -> None:
        self.file = folder / "publishers.gate"
        self._messages = messages
        self._open_to(STRIKE_AFTER[0] + LOAD_AHEAD)

    def open_for(self, strike: int) -> None:
        """Let them go on to where the strike behind this one is waited for; strikes count from 0."""
        self._open_to(STRIKE_AFTER[strike + 1] + LOAD_AHEAD if strike + 1 < len(STRIKE_AFTER) else 1.0)

    def _open_to(self, part: float) -> None:
        open_gate(self.file, self._messages if part == 1.0 else round(part * self._messages / len(TOPICS)))


async def strike_three(
    trial: Trial, strikes: Strikes, gate: _Gate, options: DemoOptions, say: Callable[[str], None]
) -> None:
    """Strike three different routers, each when its part of the source is published and enough is unsettled there.

    Raises:
        TrialFailed: a strike did not find its load, or a router did not do what it must.
        ClientFailed, LocalNetworkError: a process ended that should not have.
    """
    network = trial.network
    untouched = list(network.routers)

    async def choose(strike: int, signal_name: str) -> RouterState:
        after = STRIKE_AFTER[strike]
        await trial.wait_until(
            lambda: sum(each.counts["sent"] for each in trial.publishers.values()) >= after * options.messages,
            f"{after:.0%} of the source is published",
            patience_s(options),
        )
        gate.open_for(strike)
        target = await strikes.choose(UNSETTLED_AT_FAULT, untouched)
        untouched.remove(target.router)
        pid = network.routers[target.router].pid
        say(f"{signal_name} to router {target.router}, pid {pid}: {target.unsettled} deliveries unsettled through it")
        return target

    target = await choose(0, "SIGKILL")
    await strikes.kill(target)
    await trial.meanwhile(asyncio.sleep(RESTART_AFTER_S))
    await trial.meanwhile(network.restart(target.router))
    say(f"router {target.router} is back as a new incarnation, pid {network.routers[target.router].pid}")

    target = await choose(1, "SIGSTOP")
    await trial.meanwhile(strikes.stop_beyond_lease(target))
    say(f"router {target.router} continued, fenced itself and is back as a new incarnation, same pid")

    target = await choose(2, "SIGTERM")
    await trial.meanwhile(strikes.terminate(target))
    await trial.meanwhile(network.restart(target.router))
    say(f"router {target.router} is back as a new incarnation, pid {network.routers[target.router].pid}")


def patience_s(options: DemoOptions) -> float:
    """How long the load may take from one strike to the next, on a slow machine and with a large source."""
    return FINISH_TIMEOUT_S + options.messages * SECONDS_PER_MESSAGE
