"""All targets, with how much of each the record has."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import cast

from chaos.fuzz.target import Target


@dataclass(frozen=True, slots=True)
class Goal:
    """A target, and what is asked of it.

    Attributes:
        place: module and name of the target; it is imported only when it runs.
        inputs: how many the record shall have.
        block: runs of one line of the ledger, some seconds.
        smoke: runs of `make test`.
    """

    place: str
    inputs: int
    block: int
    smoke: int

    @property
    def target(self) -> Target:
        """The target itself."""
        module, name = self.place.split(":")
        return cast("Target", getattr(import_module(module), name))


GOALS = {
    "frames": Goal("chaos.fuzz.frames:FRAMES", 20_000, 2_500, 130),
    "performatives": Goal("chaos.fuzz.frames:PERFORMATIVES", 1_000_000, 5_000, 130),
    "logins": Goal("chaos.fuzz.logins:LOGINS", 300_000, 5_000, 130),
    "parameters": Goal("chaos.fuzz.parameters:PARAMETERS", 3_000_000, 20_000, 130),
    "filters": Goal("chaos.fuzz.filters:FILTERS", 300_000, 2_500, 130),
    "settings": Goal("chaos.fuzz.settings:SETTINGS_TARGET", 10_000, 1_000, 66),
    "etcd-values": Goal("chaos.fuzz.etcd_values:ETCD_VALUES", 200_000, 5_000, 130),
    "router-messages": Goal("chaos.fuzz.router_messages:ROUTER_MESSAGES", 6_000_000, 20_000, 130),
    "record-core": Goal("chaos.fuzz.hostile_neighbour:RECORD_CORE", 100_000, 200, 30),
    "http": Goal("chaos.fuzz.http_requests:HTTP", 20_000, 6, 1),
    "linked-routers": Goal("chaos.fuzz.linked_routers:LINKED_ROUTERS", 105_000, 6, 1),
}
"""Most inputs go to what reads bytes of strangers and takes microseconds; a whole engine or two routers take longer."""
