"""Publishers and subscribers that resume at any router: start with ``connect()``."""

from typing import TYPE_CHECKING

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
from oncewire.client.journal import Journal, MemoryJournal
from oncewire.client.link_names import RandomContainerWarning
from oncewire.client.outcomes import Outcome, OutcomeKind, Subscriptions
from oncewire.client.publisher import Publisher
from oncewire.client.sending import Sending
from oncewire.client.settled_publisher import SettledPublisher
from oncewire.client.subscriber import Subscriber
from oncewire.wire import BodyKind, Header, Message, Properties

if TYPE_CHECKING:
    from oncewire.client.codec import Codec
    from oncewire.client.codec_publisher import CodecPublisher
    from oncewire.client.requests import Request, Requester, RequestRefused, Responder
    from oncewire.client.sqlite_journal import SqliteJournal
else:

    def __getattr__(name):
        """Import what not every program uses when it is first asked for: the others start faster."""
        if name == "SqliteJournal":
            from oncewire.client import sqlite_journal as found
        elif name == "Codec":
            from oncewire.client import codec as found
        elif name == "CodecPublisher":
            from oncewire.client import codec_publisher as found
        elif name in ("Request", "RequestRefused", "Requester", "Responder"):
            from oncewire.client import requests as found
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(found, name)


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
