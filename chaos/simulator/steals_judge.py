"""Whose link is stolen: of whom somebody has attached it again since, and of nobody else (A-2b, A-3)."""

from __future__ import annotations

from collections.abc import Sequence

from chaos.simulator.state import WorldState
from chaos.simulator.violation import Violation
from delivery_records.model import effects, inputs

_STOLEN = "amqp:link:stolen"


class StealsJudge:
    """Compares each end of a link as stolen with what etcd has of its key."""

    def __init__(self, world: WorldState) -> None:
        """Nobody has attached yet."""
        self._world = world
        self._attached_at: dict[int, int] = {}
        """By link, how many changes etcd had when its router read the attach."""
        self._closing: set[int] = set()

    def on_turn(self, batch: Sequence[inputs.Input]) -> None:
        """A router reads these."""
        for each in batch:
            if isinstance(each, (inputs.PublisherAttach, inputs.SubscriberAttach)):
                self._attached_at[each.link] = self._world.etcd.revision
            elif isinstance(each, inputs.LinkDetach) and each.closed:  # who closes early attaches and closes again
                self._closing.add(each.link)

    def on_effect(self, effect: object) -> None:
        """A router has sent this to a client."""
        if not isinstance(effect, effects.DetachLink) or effect.condition != _STOLEN or effect.link in self._closing:
            return
        connection = self._world.connections.get(effect.link)
        client = None if connection is None else self._world.client_of(connection)
        if client is None:
            return
        attached_at = self._attached_at[effect.link]
        since = self._world.etcd.log[attached_at:]
        if not any((change.kind, change.key) == self._world.attachment(client) for change in since):
            raise Violation(
                f"STOLEN: {self._world.attachment(client)} was not written since link {effect.link} attached"
            )
