"""Carries out one fault on its target: break, wait, repair. `runner.py` waits for the load and keeps the record."""

from __future__ import annotations

import asyncio
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path as FilePath

import aiohttp

from chaos.clients.client_plan import SubscriberPlan
from chaos.clients.client_process import ClientProcess
from chaos.experiments.plans import (
    ClientSignal,
    EtcdFault,
    Experiment,
    FaultPlan,
    FullDisk,
    Manner,
    Member,
    Partition,
    RouterSignal,
    ToxicFault,
    Way,
)
from chaos.experiments.proxied_network import ProxiedNetwork, Wire
from chaos.experiments.targets import Target
from chaos.network.strikes import Strikes
from chaos.network.trial import Trial, TrialFailed
from router.commands.local_network import LocalNetworkError
from topology.etcd.server import EtcdServer

FOREVER_MS = 24 * 3600 * 1000
"""For Toxiproxy's latency: what is held comes when the toxic is removed."""
FULL_TIMEOUT_S = 30.0
"""Until a client whose files cannot grow has met the limit; it writes hundreds of records a second."""
START_TIMEOUT_S = 60.0
"""A router that finds no etcd when it starts ends after five seconds."""
LEADER_TIMEOUT_S = 30.0
POLL_S = 0.05

Say = Callable[[str], None]


class Injector:
    """Knows how each fault is done to the processes and proxies of one network."""

    def __init__(
        self, experiment: Experiment, network: ProxiedNetwork, trial: Trial, strikes: Strikes, say: Say
    ) -> None:
        """Nothing is broken yet.

        Args:
            experiment: knows the names of its faults.
            network: the proxies, etcd and routers.
            trial: the clients.
            strikes: keeps the record of faults.
            say: is called with each step.
        """
        self._experiment = experiment
        self._network = network
        self._trial = trial
        self._strikes = strikes
        self._say = say
        self._toxics = 0
        self._joined = 0

    async def carry_out(self, fault: FaultPlan, target: Target) -> None:
        """Break, wait, repair.

        Raises:
            TrialFailed, LocalNetworkError, ToxiproxyFailed, EtcdFailed: it did not go as it must.
        """
        match fault:
            case ToxicFault():
                await self._toxic(fault, target)
            case Partition():
                await self._partition(fault, target)
            case RouterSignal():
                await self._signal_router(fault, target)
            case EtcdFault():
                await self._signal_etcd(fault, target)
            case ClientSignal():
                await self._signal_client(fault, target)
            case FullDisk():
                await self._fill_disk(fault, target)

    # --- connections --------------------------------------------------------------------------------------------------

    async def _toxic(self, fault: ToxicFault, target: Target) -> None:
        self._fired(fault, target)
        added = await self._add(fault.toxic, dict(fault.attributes), fault.way, target)
        if fault.and_kill:
            router = self._router_of(target)
            await self._network.network.kill(router)
            await asyncio.sleep(fault.seconds)
            await self._start_again(router)
        else:
            await asyncio.sleep(fault.seconds)
        await self._remove(added)
        self._say(f"{fault.kind} at {target.name} is over")

    async def _partition(self, fault: Partition, target: Target) -> None:
        self._fired(fault, target)
        added: list[tuple[Wire, str]] = []
        if fault.manner is Manner.CUT:
            await self._enable(target, enabled=False)
        elif fault.manner is Manner.SILENT:
            added = await self._add("timeout", {"timeout": 0}, fault.way, target)
        else:
            added = await self._add("latency", {"latency": FOREVER_MS, "jitter": 0}, fault.way, target)
        await asyncio.sleep(fault.seconds)
        await self._remove(added)
        if fault.manner is Manner.CUT:
            await self._enable(target, enabled=True)
        self._say(f"{fault.kind} at {target.name} is over")

    async def _add(self, kind: str, attributes: dict[str, int], way: Way, target: Target) -> list[tuple[Wire, str]]:
        added = []
        for wire in target.wires:
            # Of a link alone neither end is the target: inward is toward the one that listens.
            seen_from = wire.dialer if wire.dialer == target.name else wire.acceptor
            if wire.acceptor.startswith("etcd"):
                seen_from = wire.dialer
            for stream in wire.streams(way, seen_from):
                self._toxics += 1
                name = f"{kind}-{self._toxics}"
                await self._network.toxiproxy.add_toxic(wire.proxy, name, kind, stream, attributes)
                added.append((wire, name))
        return added

    async def _remove(self, added: list[tuple[Wire, str]]) -> None:
        # At once: Toxiproxy takes 5 s for each read that it holds for an end which has given up, proxy by proxy.
        await asyncio.gather(*(self._network.toxiproxy.remove_toxic(wire.proxy, name) for wire, name in added))

    async def _enable(self, target: Target, *, enabled: bool) -> None:
        for wire in target.wires:
            await self._network.toxiproxy.set_enabled(wire.proxy, enabled=enabled)

    # --- routers ------------------------------------------------------------------------------------------------------

    async def _signal_router(self, fault: RouterSignal, target: Target) -> None:
        state = target.router
        assert state is not None
        self._fired(fault, target)
        if fault.number is signal.SIGSTOP:
            await self._strikes.stop_beyond_lease(state, self._join if fault.subscriber_joins else None)
            self._say(f"router {target.name} went on after the end of its lease and is a new incarnation")
            return
        if fault.number is signal.SIGKILL:
            await self._strikes.kill(state)
        else:
            await self._strikes.terminate(state)
        await asyncio.sleep(fault.seconds)
        await self._start_again(target.name)

    async def _start_again(self, router: str) -> None:
        """Start a router's next process, and the one after where etcd cannot be reached yet, as a supervisor does."""
        ends_at = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                await self._network.network.restart(router)
            except LocalNetworkError as error:
                if time.monotonic() > ends_at:
                    raise
                self._say(f"router {router} did not come up and is started once more: {error}")
            else:
                self._say(f"router {router} is back as a new process")
                return

    async def _join(self) -> None:
        """Let a subscriber join; it is confirmed at the latest when the stopped router has left etcd (A-6)."""
        self._joined += 1
        name = f"late{self._joined}"
        like = self._trial.subscribers["all"].plan
        assert isinstance(like, SubscriberPlan)
        folder = FilePath(like.events).parent
        journal = None if like.journal is None else str(folder / f"{name}.sqlite")
        plan = SubscriberPlan(
            name=name,
            address=like.address,
            urls=like.urls,
            events=str(folder / f"{name}.jsonl"),
            batch=like.batch,
            batch_s=like.batch_s,
            journal=journal,
        )
        await self._trial.add_subscriber(plan)
        self._say(f"subscriber {name} joins")

    def _router_of(self, target: Target) -> str:
        return target.name if target.name in self._network.network.routers else target.wires[0].acceptor

    # --- etcd ---------------------------------------------------------------------------------------------------------

    async def _signal_etcd(self, fault: EtcdFault, target: Target) -> None:
        leader = await leader_of(self._network.members)
        others = [member for member in self._network.members if member is not leader]
        follower = others[len(self._strikes.faults) % len(others)]
        member = leader if fault.member is Member.LEADER else follower
        number = self._network.members.index(member) + 1
        self._say(f"etcd{number} is the {fault.member.value}, pid {member.pid}")
        self._fired(fault, target)
        if fault.number is signal.SIGSTOP:
            member.pause()
            try:
                await asyncio.sleep(fault.seconds)
            finally:
                member.resume()
        else:
            await member.kill()
            await asyncio.sleep(fault.seconds)
            await member.restart()
        self._say(f"etcd{number} is back")

    # --- clients ------------------------------------------------------------------------------------------------------

    async def _signal_client(self, fault: ClientSignal, target: Target) -> None:
        client = target.client
        assert client is not None
        self._fired(fault, target)
        if not fault.returns:
            await self._trial.lose_subscriber(client.name)
            return
        if fault.number is signal.SIGSTOP:
            client.pause()
            try:
                await asyncio.sleep(fault.seconds)
            finally:
                client.resume()
            self._say(f"{client.name} goes on")
            return
        await client.kill()
        await asyncio.sleep(fault.seconds)
        await client.start()
        self._say(f"{client.name} is back as a new process")

    async def _fill_disk(self, fault: FullDisk, target: Target) -> None:
        """Let no file of the client grow: what a full disk does, but that the error is EFBIG and not ENOSPC."""
        client = target.client
        assert client is not None
        client.may_fail = True
        self._fired(fault, target)
        limit = size_limit(client)
        resource.prlimit(client.pid, resource.RLIMIT_FSIZE, (limit, limit))
        self._say(f"no file of {client.name} may grow beyond {limit} bytes")
        await self._trial.wait_until(
            lambda: client.has_ended, f"{client.name} has ended for want of room", FULL_TIMEOUT_S
        )
        errors = [line for line in client.last_words().splitlines() if "Error" in line or "Journal" in line]
        self._say(f"{client.name} ended: {errors[-1].strip(' |') if errors else 'it said nothing'}")
        await asyncio.sleep(fault.seconds)
        await client.start()
        client.may_fail = False
        self._say(f"{client.name} is back as a new process, with room")

    # --- the record ---------------------------------------------------------------------------------------------------

    def _fired(self, fault: FaultPlan, target: Target) -> None:
        self._say(f"{fault}: at {target.name}, {target.unsettled} deliveries unsettled through it")
        if not isinstance(fault, RouterSignal):  # these Strikes record themselves
            self._strikes.record(self._experiment.kind_of(fault), target.name, target.unsettled)


def size_limit(client: ClientProcess) -> int:
    """A size that the client's journal has and will soon want to pass: half of its write-ahead log."""
    assert client.plan.journal is not None
    log = FilePath(client.plan.journal + "-wal")
    return max(1, (log.stat().st_size if log.exists() else FilePath(client.plan.journal).stat().st_size) // 2)


async def leader_of(members: list[EtcdServer]) -> EtcdServer:
    """The member of etcd that leads now. Raises TrialFailed when there is none for long."""
    ends_at = time.monotonic() + LEADER_TIMEOUT_S
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2.0)) as session:
        while time.monotonic() < ends_at:
            for member in members:
                try:
                    async with session.post(f"{member.urls[0]}/v3/maintenance/status", json={}) as answer:
                        status = await answer.json()
                except (aiohttp.ClientError, TimeoutError):
                    continue
                if status.get("leader") == status["header"]["member_id"]:
                    return member
            await asyncio.sleep(POLL_S)
    raise TrialFailed(f"no member of etcd leads after {LEADER_TIMEOUT_S:g} s")
