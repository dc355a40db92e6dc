"""Publishers and subscribers that resume at any router: start with ``connect()``."""

from oncewire.client.connection import Client, connect
from oncewire.client.delivery import DeadLetter, Delivery
from oncewire.client.errors import (
    AuthenticationFailed,
    ClientClosed,
    ClientError,
    ConnectFailed,
    JournalCorrupt,
    JournalError,
    JournalFull,
    JournalLocked,
    JournalOwnerError,
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
from oncewire.client.sqlite_journal import SqliteJournal
from oncewire.client.subscriber import Subscriber
from oncewire.wire import BodyKind, Header, Message, Properties

__all__ = [
    "AuthenticationFailed",
    "BodyKind",
    "Client",
    "ClientClosed",
    "ClientError",
    "ClientEvent",
    "ClientStatistics",
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
