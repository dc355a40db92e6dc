"""Joins the network: a lease in etcd for the next incarnation, tried until there is one (K-1)."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

from delivery_records.model.view import RouterRecord
from oncewire.cli.errors import CliError
from router.process.logs import EventLog, RouterEvent
from router.settings.config import RouterConfig
from topology.etcd.store import ClusterStore, StoreError, StoreReplaced, StoreTimeout, StoreUnavailable, StoreUntrusted
from topology.etcd.wrong_scheme import wrongly_written
from topology.members.history_core import SeenHistory
from topology.members.membership import Membership

RETRY_S = 0.5
"""Before the second attempt to begin an incarnation while etcd cannot be reached; doubled up to LONGEST_RETRY_S."""
LONGEST_RETRY_S = 4.0
"""What an outage of etcd costs more than it lasts; some hundred routers that ask so often are no load."""
JITTER = 0.25
"""Share of a pause that is random: routers that lost etcd together do not ask it together."""


class Joining:
    """Begins incarnations of one router process in etcd."""

    def __init__(self, config: RouterConfig, log: EventLog, stop_wanted: asyncio.Event, seen: SeenHistory) -> None:
        """Nothing is asked yet; `stop_wanted` ends every wait, `seen` is what this router remembers of etcd."""
        self.is_store_unreachable = False
        """Whether the last attempt failed."""
        self.history_lost = ""
        """Why an operator has to confirm what etcd holds (K-9); empty: nothing is known against it."""
        self._config = config
        self._log = log
        self._stop_wanted = stop_wanted
        self._seen = seen
        self._has_joined = False
        self._started_at = time.monotonic()

    async def join(self, open_store: Callable[[], ClusterStore], record: RouterRecord) -> Membership | None:
        """Try until etcd grants a lease; None when the process is to stop.

        Raises:
            CliError: the process has never joined, and trying again is in vain or has taken too long.
        """
        pause_s = RETRY_S
        while not self._stop_wanted.is_set():
            try:
                membership = await Membership.join(open_store, record, self._config.lease_ttl_s, self._seen)
            except StoreError as error:
                await self._note_no_store(error)
                await pause(self._stop_wanted, pause_s * random.uniform(1 - JITTER, 1))
                pause_s = min(2 * pause_s, LONGEST_RETRY_S)
                continue
            self._has_joined = True
            self.history_lost = ""
            if self.is_store_unreachable:
                self.is_store_unreachable = False
                self._log.event(RouterEvent.STORE_BACK)
            return membership
        return None

    async def _note_no_store(self, error: StoreError) -> None:
        """An attempt has failed.

        Raises:
            CliError: see `join`.
        """
        if isinstance(error, StoreReplaced) and not self.history_lost:
            self.history_lost = str(error)
            self._log.event(RouterEvent.HISTORY_LOST, why=str(error))
        if not self._has_joined:
            await self._raise_if_in_vain(error)
        if self.is_store_unreachable:
            return
        self.is_store_unreachable = True
        if self._has_joined:
            self._log.event(RouterEvent.STORE_FAILED, doing="begin an incarnation", why=str(error))
            return
        self._log.event(
            RouterEvent.STORE_AWAITED,
            etcd=",".join(self._config.etcd_endpoints),
            why=str(error),
            patience_s=self._config.etcd_start_patience_s,
        )

    async def _raise_if_in_vain(self, error: StoreError) -> None:
        config = self._config
        if isinstance(error, StoreUntrusted) or not isinstance(error, StoreUnavailable | StoreTimeout):
            fix = _AFTER_RESTORE if isinstance(error, StoreReplaced) else _CHECK_SETTINGS
            raise _no_etcd(config, str(error), fix) from None
        wrong = await wrongly_written(config.etcd_endpoints)
        if wrong is not None:
            raise _no_etcd(config, f"{wrong} answers, but not to {wrong.partition(':')[0]}", _CHECK_SCHEME)
        if time.monotonic() - self._started_at >= config.etcd_start_patience_s:
            raise _no_etcd(config, str(error), _START_ETCD) from None


async def pause(stop_wanted: asyncio.Event, seconds: float) -> None:
    """Wait, but not when the process is to stop."""
    try:
        async with asyncio.timeout(seconds):
            await stop_wanted.wait()
    except TimeoutError:
        pass


_START_ETCD = (
    "start etcd, give --etcd-endpoints the URLs of one that runs, or run one router alone with --standalone; "
    "--etcd-start-patience-s says how long to wait for etcd"
)
_AFTER_RESTORE = "do that: docs/how-to/recover.md has the steps"
_CHECK_SCHEME = "write it in --etcd-endpoints with the other one of http and https"
_CHECK_SETTINGS = "check the settings etcd.*: endpoints, user, password, ca_file, cert_file, key_file"


def _no_etcd(config: RouterConfig, why: str, fix: str) -> CliError:
    return CliError(f"the router cannot work with etcd at {', '.join(config.etcd_endpoints)}", why, fix)
