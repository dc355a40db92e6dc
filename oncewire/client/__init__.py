"""Publishers and subscribers that resume at any router: start with ``connect()``."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oncewire.client.codec import Codec
    from oncewire.client.codec_publisher import CodecPublisher
    from oncewire.client.connecting import connect
    from oncewire.client.connection import Client
    from oncewire.client.delivery import DeadLetter, Delivery
    from oncewire.client.errors import (
        AuthenticationFailed,
        BodyNotDecoded,
        ClientClosed,
        ClientError,
        ConnectFailed,
        JournalCorrupt,
        JournalError,
        JournalFull,
        JournalLocked,
        JournalOwnerError,
        JournalUnreachable,
        JournalUnusable,
        LinkRefused,
        LinkStolen,
        MessageTooLarge,
        NotAccepted,
        StillOwed,
        UsageError,
        WindowFull,
    )
    from oncewire.client.events import (
        ClientEvent,
        ClientStatistics,
        Connected,
        ConsumerStatistics,
        DeliveryGivenUp,
        Disconnected,
        LinkActive,
        LinkInterrupted,
        LinkStatistics,
        MessageSetAside,
        NewIncarnation,
        PublisherWaits,
        SessionExpired,
        SubscriptionExpired,
        SubscriptionsEnded,
    )
    from oncewire.client.guarantee import Guarantee
    from oncewire.client.journal import Journal, MemoryJournal
    from oncewire.client.link_names import RandomContainerWarning
    from oncewire.client.outcomes import Outcome, OutcomeKind, Subscriptions
    from oncewire.client.publisher import Publisher
    from oncewire.client.requests import Request, Requester, RequestRefused, Responder
    from oncewire.client.sending import Sending
    from oncewire.client.settled_publisher import SettledPublisher
    from oncewire.client.sqlite_journal import SqliteJournal
    from oncewire.client.subscriber import Subscriber
    from oncewire.wire import BodyKind, Header, Message, Properties
else:
    from oncewire.public_names import public_names

    _PLACES = {
        "oncewire.client.codec": "Codec",
        "oncewire.client.codec_publisher": "CodecPublisher",
        "oncewire.client.connecting": "connect",
        "oncewire.client.connection": "Client",
        "oncewire.client.delivery": "DeadLetter Delivery",
        "oncewire.client.errors": (
            "AuthenticationFailed BodyNotDecoded ClientClosed ClientError ConnectFailed JournalCorrupt "
            "JournalError JournalFull JournalLocked JournalOwnerError JournalUnreachable JournalUnusable "
            "LinkRefused LinkStolen MessageTooLarge NotAccepted StillOwed UsageError WindowFull"
        ),
        "oncewire.client.events": (
            "ClientEvent ClientStatistics Connected ConsumerStatistics DeliveryGivenUp Disconnected LinkActive "
            "LinkInterrupted LinkStatistics MessageSetAside NewIncarnation PublisherWaits SessionExpired "
            "SubscriptionExpired SubscriptionsEnded"
        ),
        "oncewire.client.guarantee": "Guarantee",
        "oncewire.client.journal": "Journal MemoryJournal",
        "oncewire.client.link_names": "RandomContainerWarning",
        "oncewire.client.outcomes": "Outcome OutcomeKind Subscriptions",
        "oncewire.client.publisher": "Publisher",
        "oncewire.client.requests": "Request Requester RequestRefused Responder",
        "oncewire.client.sending": "Sending",
        "oncewire.client.settled_publisher": "SettledPublisher",
        "oncewire.client.sqlite_journal": "SqliteJournal",
        "oncewire.client.subscriber": "Subscriber",
        "oncewire.wire": "BodyKind Header Message Properties",
    }
    __getattr__, __dir__ = public_names(__name__, _PLACES)

__all__ = [
    "AuthenticationFailed",
    "BodyKind",
    "BodyNotDecoded",
    "Client",
    "ClientClosed",
    "ClientError",
    "ClientEvent",
    "ClientStatistics",
    "Codec",
    "CodecPublisher",
    "ConnectFailed",
    "Connected",
    "ConsumerStatistics",
    "DeadLetter",
    "Delivery",
    "DeliveryGivenUp",
    "Disconnected",
    "Guarantee",
    "Header",
    "Journal",
    "JournalCorrupt",
    "JournalError",
    "JournalFull",
    "JournalLocked",
    "JournalOwnerError",
    "JournalUnreachable",
    "JournalUnusable",
    "LinkActive",
    "LinkInterrupted",
    "LinkRefused",
    "LinkStatistics",
    "LinkStolen",
    "MemoryJournal",
    "Message",
    "MessageSetAside",
    "MessageTooLarge",
    "NewIncarnation",
    "NotAccepted",
    "Outcome",
    "OutcomeKind",
    "Properties",
    "Publisher",
    "PublisherWaits",
    "RandomContainerWarning",
    "Request",
    "RequestRefused",
    "Requester",
    "Responder",
    "Sending",
    "SessionExpired",
    "SettledPublisher",
    "SqliteJournal",
    "StillOwed",
    "Subscriber",
    "SubscriptionExpired",
    "Subscriptions",
    "SubscriptionsEnded",
    "UsageError",
    "WindowFull",
    "connect",
]
