"""What an experiment does to routers: each strike waits for its condition, then hits, then heals.

A strike needs load through its target, never a time: it waits until every client is attached and enough deliveries are
unsettled there, and is recorded with that number.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Sequence

from chaos.network.faults import Fault
from chaos.network.network_state import RouterState
from chaos.network.trial import Trial, TrialFailed
from router.commands.local_network import LocalNetwork
from topology.etcd.gateway_store import GatewayStore
from topology.etcd.store import PREFIX

ATTACH_TIMEOUT_S = 30.0
"""Clients find another router within a second or two; a busy machine may need longer."""
UNSETTLED_TIMEOUT_S = 20.0
"""Until the load has built up through a target."""
LEASE_TIMEOUT_S = 60.0
"""etcd deletes the keys of a lease within seconds of its end."""
POLL_S = 0.05


class Strikes:
    """Strikes at the routers of a trial, and the record of them."""

    def __init__(self, trial: Trial, situation: str = "") -> None:
        """Nothing has been struck yet; `situation` is added to the name of every signal."""
        self._situation = situation
        self.faults: list[Fault] = []
        self._trial = trial
        self._network = trial.network

    async def choose(self, at_least: int, candidates: Sequence[str], patience_s: float = 0.0) -> RouterState:
        """Wait until all clients are attached and `at_least` deliveries go through one candidate; the busiest one.

        Args:
            at_least: how many are enough.
            candidates: routers.
            patience_s: how long to wait for each, if longer than usual.

        Raises:
            TrialFailed: that did not come about.
        """
        await self._trial.wait_until_attached(max(patience_s, ATTACH_TIMEOUT_S))
        return await self._trial.wait_until_unsettled(at_least, candidates, max(patience_s, UNSETTLED_TIMEOUT_S))

    async def kill(self, target: RouterState) -> None:
        """SIGKILL the router; the caller starts it again."""
        self._record(target, signal.SIGKILL)
        await self._network.kill(target.router)

    async def kill_all(self, targets: Sequence[RouterState]) -> None:
        """SIGKILL several routers at once."""
        for target in targets:
            self._record(target, signal.SIGKILL)
        await asyncio.gather(*(self._network.kill(target.router) for target in targets))

    async def terminate(self, target: RouterState) -> None:
        """SIGTERM the router and wait for its orderly end.

        Raises:
            TrialFailed: it ended with an error.
        """
        process = self._network.routers[target.router].process
        assert process is not None
        self._record(target, signal.SIGTERM)
        await self._network.terminate(target.router)
        if process.returncode != 0:
            raise TrialFailed(f"router {target.router} ended with code {process.returncode} after SIGTERM")

    async def stop_beyond_lease(
        self, target: RouterState, meanwhile: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """SIGSTOP the router until etcd has deleted its router key, then SIGCONT; it must fence itself (K-3).

        Args:
            target: the router.
            meanwhile: what else happens while it is stopped.

        Raises:
            TrialFailed: its key stayed, or it went on as the old incarnation.
        """
        pid = self._network.routers[target.router].pid
        self._record(target, signal.SIGSTOP)
        self._network.sigstop(target.router)
        try:
            if meanwhile is not None:
                await meanwhile()
            await wait_until_lease_ended(self._network, target.router)
        finally:
            self._network.sigcont(target.router)
        await self._network.wait_ready(target.router)
        await self._wait_until_reborn(target)
        if self._network.routers[target.router].pid != pid:
            raise TrialFailed(f"router {target.router} did not survive being stopped")

    async def _wait_until_reborn(self, target: RouterState) -> None:
        ends_at = time.monotonic() + LEASE_TIMEOUT_S
        while time.monotonic() < ends_at:
            self._trial.look()
            state = (await self._trial.states([target.router])).get(target.router)
            if state is not None and state.incarnation not in (0, target.incarnation):
                await self._network.wait_ready(target.router)
                return
            await asyncio.sleep(POLL_S)
        raise TrialFailed(f"router {target.router} did not fence itself: it goes on as the incarnation it was")

    def record(self, kind: str, target: str, unsettled: int) -> Fault:
        """Note a fault that happens now."""
        fault = Fault(time.monotonic(), target, kind, unsettled)
        self.faults.append(fault)
        return fault

    def _record(self, target: RouterState, number: signal.Signals) -> None:
        self.record(f"{number.name}{self._situation}", target.router, target.unsettled)


async def router_keys(network: LocalNetwork) -> list[str]:
    """The router keys in etcd, without their prefix: `<router>.<incarnation>`."""
    store = GatewayStore(network.etcd_urls)
    try:
        prefix = f"{PREFIX}routers/"
        _, entries = await store.snapshot(prefix)
        return [entry.key.removeprefix(prefix) for entry in entries]
    finally:
        await store.close()


async def wait_until_lease_ended(network: LocalNetwork, router: str) -> None:
    """Wait until etcd has no key of this router. Raises TrialFailed when it keeps one."""
    ends_at = time.monotonic() + LEASE_TIMEOUT_S
    while any(key.rpartition(".")[0] == router for key in await router_keys(network)):
        if time.monotonic() > ends_at:
            raise TrialFailed(f"etcd still has a key of router {router} after {LEASE_TIMEOUT_S:g} s")
        await asyncio.sleep(POLL_S)
