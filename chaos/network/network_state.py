"""What the routers say of themselves over HTTP (`/api/v1/state`): when to strike, and whether anything is left over.

The verdict does not use it: that comes from the clients' journals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import aiohttp

STATE_TIMEOUT_S = 1.0
"""A router that is busy answers late; one that is stopped never does."""


@dataclass(frozen=True, slots=True)
class RouterState:
    """One router's state at an instant."""

    router: str
    incarnation: int
    """The lease of its router key in etcd; 0 = it is between two incarnations."""
    unsettled: int
    """Deliveries in the windows of publishers here, and entries of subscriptions here."""
    finished: int
    """Entries here that their subscriber has finished with and no settle has reached yet."""
    records: dict[str, int]
    """What `unsettled` counts, one by one."""
    lease_left_s: float
    """Until it has to fence itself; a release that does not report it counts as fresh."""


async def read_states(session: aiohttp.ClientSession, places: dict[str, str]) -> dict[str, RouterState]:
    """Read the states of the routers (id -> HTTP address); one that does not answer is left out."""
    states = {}
    for router, http in places.items():
        try:
            async with session.get(
                f"{http}/api/v1/state", timeout=aiohttp.ClientTimeout(total=STATE_TIMEOUT_S)
            ) as answer:
                tables = await answer.json()
        except (aiohttp.ClientError, TimeoutError):
            continue
        states[router] = _state_of(router, tables)
    return states


def _state_of(router: str, tables: dict[str, Any]) -> RouterState:
    # Between two incarnations a router holds nothing, and says so by leaving these tables out.
    records = {f"window of {each['publisher']}": int(each["unsettled"]) for each in tables.get("windows", ())}
    records |= {f"entries of {each['subscription']}": int(each["entries"]) for each in tables.get("endpoints", ())}
    finished = sum(int(each["states"].get("done", 0)) for each in tables.get("endpoints", ()))
    lease_left_s = float(tables.get("lease_left_s", math.inf))
    return RouterState(router, int(tables.get("rid", 0)), sum(records.values()), finished, records, lease_left_s)
