"""A publisher's process that was paused while another one took its journal over, and that continues (P-b)."""

from __future__ import annotations

from chaos.simulator.connections import SimulatedConnection
from chaos.simulator.shipped_publisher import ShippedPublisher
from delivery_records.model import effects, inputs
from oncewire.client import core_effects as wanted


class PausedPublisher:
    """The shipped core over a journal that it does not own any more, beside its successor.

    The journal refuses its commits, and this process notices that late: it acts on its map until then.
    """

    def __init__(self, publisher: ShippedPublisher) -> None:
        """Pause the process of a publisher, and let another one take its journal over."""
        self._publisher = publisher
        self._core = publisher.replace_process()
        self._connection: SimulatedConnection | None = None
        self._sent = 0

    @property
    def may_attach(self) -> bool:
        """False where a commit decides what is in its map: it ends with that commit."""
        return self._core.may_attach

    def attach(self, connection: SimulatedConnection, peer: str) -> None:
        """Continue: its connection is lost, so it attaches with the map that it has in memory."""
        self._connection = connection
        self._publisher.attach(connection, self._core, peer)

    def receive(self, effect: effects.Effect) -> bool:
        """One frame of the router; False when the process ends."""
        core = self._core
        asked: list[wanted.PublisherEffect] = []
        if isinstance(effect, effects.PublisherReply):
            resume = "resumed" if effect.resumed else "new"
            processed = core.requirement.counts.processing
            asked = core.attached(
                capable=effect.exactly_once, resume=resume, require=core.requirement.asked, require_processed=processed
            )
        elif isinstance(effect, effects.AskEcho):
            asked = core.flow(0, echo=effect.epoch)
        elif isinstance(effect, effects.GrantPublisherCredit):
            asked = core.flow(effect.limit, session=effect.session)
        elif isinstance(effect, (effects.DetachLink, effects.CloseConnection, effects.Dispose)):
            return False  # an outcome cannot be recorded
        return all(self._carry_out(each) for each in asked)

    def _carry_out(self, effect: wanted.PublisherEffect) -> bool:
        connection = self._connection
        assert connection is not None
        if isinstance(effect, wanted.AnswerEcho):
            connection.up.append(inputs.ClientFlow(connection.link, echoed_epoch=effect.value))
        elif isinstance(effect, wanted.SendTransfer):
            self._sent += 1
            connection.up.append(inputs.PublisherTransfer(connection.link, self._sent, effect.tag, effect.payload))
        return not isinstance(effect, (wanted.ProveOwner, wanted.RefuseLink))  # the journal is another's
