"""What the routers say of themselves over HTTP (`/api/v1/state`): when to strike, and whether anything is left over.

The verdict does not use it: that comes from the clients' journals.
"""

from __future__ import annotations

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
    """etcd lease of its router key; 0 = it is between two incarnations."""
    unsettled: int
    """Deliveries in publishers' windows here, and records of subscriptions' deliveries here."""
    records: dict[str, int]
    """The same, by name of the link."""


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
    records = {f"publisher {each['name']}": int(each["unsettled"]) for each in tables["publishers"]}
    records |= {f"subscriber {each['name']}": int(each["unsettled"]) for each in tables["subscribers"]}
    return RouterState(router, int(tables["incarnation"]), sum(records.values()), records)
