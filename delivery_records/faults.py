"""What becomes of an exception in a turn of the record core (K-3b): it ends what it concerns, or the incarnation.

The records of one endpoint, an `Ingress` or an `Egress`, are a fault domain of their own: forgotten they are as after a
crash, which the protocol survives (N-1). Everything else is shared, and an `AssertionError` says that a promise of our
own is broken: both end the incarnation (K-3).
"""

from __future__ import annotations

from delivery_records.attachments.endpoints import Endpoints
from delivery_records.attachments.expiry import Expiry
from delivery_records.channels.channel import Channels
from delivery_records.model import effects, inputs
from delivery_records.model.endpoint import Endpoint
from delivery_records.model.inputs import LossCause, SendFailed
from delivery_records.model.messages import Ack, Annotations, Credit, MsgPart, Nack, Need, RouterMessage, Taken
from delivery_records.model.timers import OF_AN_EGRESS, OF_AN_INGRESS, Timer
from delivery_records.model.turn import Turn
from delivery_records.model.view import publisher_path
from delivery_records.publisher.ingress import Ingress
from delivery_records.subscriber.egress import Egress

CONDITION = "amqp:internal-error"
_TEXT = "a fault of this router; its log has the traceback. Attach again"
_OF_A_LINK = (
    inputs.PublisherTransfer,
    inputs.LargeTransfer,
    inputs.PublisherSettle,
    inputs.SubscriberDisposition,
    inputs.LargeTaken,
    inputs.ClientFlow,
    inputs.SessionRoom,
)
_ATTACHES = (inputs.PublisherAttach, inputs.SubscriberAttach, inputs.MapPart)


class Faults:
    """Confines an exception to the endpoint whose records it may have left half changed."""

    __slots__ = ("_channels", "_endpoints", "_expiry", "_turn")

    def __init__(self, turn: Turn, endpoints: Endpoints, expiry: Expiry, channels: Channels) -> None:
        """Nothing has failed."""
        self._turn = turn
        self._endpoints = endpoints
        self._expiry = expiry
        self._channels = channels

    def of_input(self, item: object, error: Exception) -> None:
        """An input could not be handled.

        Raises:
            Exception: `error`, where shared state may be half changed.
        """
        turn = self._turn
        if isinstance(item, inputs.RouterFrame):
            self._of_frame(item, error)
        elif isinstance(item, _OF_A_LINK):
            endpoint = self._endpoints.links.get(item.link)
            if not isinstance(endpoint, (Ingress, Egress)):
                raise error
            self.of_endpoint(endpoint, error)
        elif isinstance(item, _ATTACHES) and self._is_new(item.link) and not isinstance(error, AssertionError):
            turn.out.append(effects.Faulted(error))  # nothing of it was kept yet
            turn.out.append(effects.DetachLink(item.link, True, CONDITION, _TEXT))
        else:
            raise error

    def _is_new(self, link: int) -> bool:
        return link not in self._endpoints.links

    def of_timer(self, timer: Timer, owner: str | int, error: Exception) -> None:
        """A deadline could not be carried out. Raises as `of_input` does."""
        endpoint: Ingress | Egress | None = None
        if isinstance(owner, str) and timer in OF_AN_INGRESS:
            endpoint = self._endpoints.ingresses.get(owner)
        elif isinstance(owner, str) and timer in OF_AN_EGRESS:
            endpoint = self._endpoints.egresses.get(owner)
        if endpoint is None:
            raise error
        self.of_endpoint(endpoint, error)

    def _of_frame(self, frame: inputs.RouterFrame, error: Exception) -> None:
        """A frame of another router: what it named was confined before; here its channel starts over (T-4)."""
        channel = self._channels.find(frame.origin)
        if channel is None or isinstance(error, AssertionError):
            raise error
        self._turn.out.append(effects.Faulted(error))
        channel.restart("a frame could not be handled")

    def on_send_failed(self, failed: SendFailed) -> None:
        """A frame could not be encoded: forget the endpoint it spoke for; its channels repeat the rest (T-4)."""
        message = failed.message
        endpoint = self._speaker(message)
        if endpoint is not None:
            self._forget(endpoint)
        for rid in failed.rids:
            channel = self._channels.find(rid)
            if channel is not None:
                channel.restart("a frame could not be encoded")

    def _speaker(self, message: RouterMessage) -> Ingress | Egress | None:
        turn = self._turn
        if isinstance(message, (Ack, Nack, Annotations, Taken, Need)):
            return self._endpoints.egresses.get(turn.view.subscription_epochs.get(message.subscription_epoch, ""))
        if isinstance(message, Credit):
            return None
        epoch = message.head.publisher_epoch if isinstance(message, MsgPart) else message.publisher_epoch
        return self._endpoints.ingress_by_epoch.get(epoch)

    def of_endpoint(self, endpoint: Endpoint, error: Exception) -> None:
        """The records of this endpoint may be half changed: forget them and suspend its link (A-9).

        Raises:
            AssertionError: `error`, if it says that shared state is broken.
        """
        if isinstance(error, AssertionError):
            raise error
        self._turn.out.append(effects.Faulted(error))
        self._forget(endpoint)

    def _forget(self, endpoint: Endpoint) -> None:
        turn = self._turn
        if isinstance(endpoint, Ingress):
            if self._endpoints.ingresses.get(endpoint.key) is not endpoint:
                return
            link: int | None = endpoint.link
            self._endpoints.forget_ingress(endpoint)
            publisher = turn.view.publishers.get(endpoint.key)
            if publisher is not None and link is not None:  # else its time runs, or waits for an end, already
                policy, place = endpoint.expiry_policy, endpoint.place
                self._expiry.on_link_lost(publisher_path(endpoint.key), publisher, policy, LossCause.DETACH, place)
        else:
            assert isinstance(endpoint, Egress)
            if self._endpoints.egresses.get(endpoint.key) is not endpoint:
                return
            link = endpoint.link
            self._endpoints.suspend(endpoint, LossCause.DETACH)
        if link is not None:
            turn.out.append(effects.DetachLink(link, False, CONDITION, _TEXT))
