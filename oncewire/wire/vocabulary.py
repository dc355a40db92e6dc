"""The names this network adds to AMQP 1.0, each spelled here alone; docs/protocol.md says what they mean.

`x-opt-topic-*` names message annotations and link properties; routers drop annotations of that prefix that are not
theirs to pass on (I-1b). `x-opt-router-*` names properties of connections between routers.
"""

from __future__ import annotations

from oncewire.wire.performatives import Fields
from oncewire.wire.types import Described, Symbol, ULong

TOPIC_PREFIX = b"x-opt-topic-"
DEAD_LETTER_PREFIX = b"x-opt-dead-letter-"

# --- capabilities -----------------------------------------------------------------------------------------------------

EXACTLY_ONCE = Symbol("topic-exactly-once")
"""Of a link. Desired: the client promises P-1, P-2 or S-1, C-3 and answers the echo. Offered: it is granted."""
TOPIC = Symbol("topic")
"""Of a terminus: it is a topic."""
SHARED = Symbol("shared")
"""Of a subscriber's source: the link is a member of a shared subscription (SH-1)."""
GLOBAL = Symbol("global")
"""With it: members may have any container-id."""
GROUP_ORDER = Symbol("topic-group-order")
"""With it: messages of one group come in order (SH-6)."""
SHARED_SUBSCRIPTIONS = Symbol("SHARED-SUBS")
"""Of a connection, offered: JMS clients ask for it."""
INTER_ROUTER = Symbol("oncewire-inter-router")
"""Of a connection between routers."""

SERVICE = Symbol("oncewire-service")
"""Of a connection, desired: the client serves the addresses that `SERVES` names (R-1)."""
ROUTED_LINKS = Symbol("oncewire-routed-links")
"""Of a connection between routers, offered: it carries routed links (R-3)."""

# --- message annotations of routers (I-1b) ----------------------------------------------------------------------------

PUBLISHER = Symbol("x-opt-topic-publisher")
USER = Symbol("x-opt-topic-user")
"""Who has published, as logged in; ANONYMOUS without a login where the router has logins, else absent."""
ANONYMOUS = "$anonymous"
"""Stands for whoever has not logged in, in rules of access and in USER."""
TAG = Symbol("x-opt-topic-tag")
SESSION = Symbol("x-opt-topic-session")
"""Also a link property."""
REDELIVERED = Symbol("x-opt-topic-redelivered")

# --- message annotations of publishers and bridges --------------------------------------------------------------------

IN_DOUBT = Symbol("x-opt-topic-in-doubt")
GROUP_ID = Symbol("x-opt-group-id")
"""The group of a message; without it the group-id of its properties (SH-6)."""
PRODUCER = Symbol("x-opt-topic-producer")
"""NAME@BORN; a name without a birth is as old as can be."""
SEQUENCE = Symbol("x-opt-topic-seq")
"""A message with a producer and this, and nothing else of a sequence, stands alone."""
FLOOR = Symbol("x-opt-topic-floor")
TRANSACTION = Symbol("x-opt-topic-transaction")
"""`continue`, `last BEGINS`, `ack BEGINS` or `rollback BEGINS`."""
BATCH = Symbol("x-opt-topic-batch")
BATCH_END = Symbol("x-opt-topic-batch-end")
DELIVERY_HASH = Symbol("x-opt-topic-delivery-hash")

CLIENT_ANNOTATIONS = (IN_DOUBT, PRODUCER, SEQUENCE, FLOOR, TRANSACTION, BATCH, BATCH_END, DELIVERY_HASH)
"""Annotations under our prefix that publishers and bridges set themselves; the others are the routers' alone."""

# --- message annotations of dead letters, which routers alone set (I-3e) ----------------------------------------------

DEAD_LETTER_REASON = Symbol("x-opt-dead-letter-reason")
DEAD_LETTER_TOPIC = Symbol("x-opt-dead-letter-topic")
DEAD_LETTER_SUBSCRIPTION = Symbol("x-opt-dead-letter-subscription")
DEAD_LETTER_ATTEMPTS = Symbol("x-opt-dead-letter-attempts")
DEAD_LETTER_ERROR = Symbol("x-opt-dead-letter-error")
DEAD_LETTER_COUNT = Symbol("x-opt-dead-letter-count")

# --- message annotations of dead letters that consumers publish (CO-7) ------------------------------------------------

FAILED_PREFIX = b"x-opt-failed-"
FAILED_REASON = Symbol("x-opt-failed-reason")
FAILED_TOPIC = Symbol("x-opt-failed-topic")
FAILED_SUBSCRIPTION = Symbol("x-opt-failed-subscription")
FAILED_ATTEMPTS = Symbol("x-opt-failed-attempts")
FAILED_ERROR = Symbol("x-opt-failed-error")
FAILED_PUBLISHER = Symbol("x-opt-failed-publisher")
FAILED_USER = Symbol("x-opt-failed-user")

# --- filters of sources that others have registered and routers offer (E-9) -------------------------------------------

SELECTOR_FILTER = Symbol("apache.org:selector-filter:string")
NO_LOCAL_FILTER = Symbol("apache.org:no-local-filter:list")
SUBJECT_FILTER = Symbol("apache.org:legacy-amqp-direct-binding:string")
SUBJECT_PATTERN_FILTER = Symbol("apache.org:legacy-amqp-topic-binding:string")
PROPERTIES_FILTER = Symbol("amqp:properties-filter")
APPLICATION_PROPERTIES_FILTER = Symbol("amqp:application-properties-filter")
FILTER_CODES = {
    0x0000_468C_0000_0000: SUBJECT_FILTER,
    0x0000_468C_0000_0001: SUBJECT_PATTERN_FILTER,
    0x0000_468C_0000_0003: NO_LOCAL_FILTER,
    0x0000_468C_0000_0004: SELECTOR_FILTER,
    0x173: PROPERTIES_FILTER,
    0x174: APPLICATION_PROPERTIES_FILTER,
}
"""The numeric form of each descriptor."""

# --- link properties --------------------------------------------------------------------------------------------------

RESUME = Symbol("x-opt-topic-resume")
INCARNATION = Symbol("x-opt-topic-incarnation")
ECHO = Symbol("x-opt-topic-echo")
CONFIRMED = Symbol("x-opt-topic-confirmed")
TIMEOUT = Symbol("x-opt-topic-timeout")
EXPIRY_POLICY = Symbol("x-opt-topic-expiry-policy")
ASK = Symbol("x-opt-topic-ask")
ASKED = Symbol("x-opt-topic-asked")
OWING = Symbol("x-opt-topic-owing")
OWING_COUNT = Symbol("x-opt-topic-owing-count")
ENDED = Symbol("x-opt-topic-ended")
ENDED_COUNT = Symbol("x-opt-topic-ended-count")
ENDED_TAG = Symbol("x-opt-topic-ended-tag")
REQUIRE = Symbol("x-opt-topic-require")
REQUIRE_PROCESSED = Symbol("x-opt-topic-require-processed")
WAIT = Symbol("x-opt-topic-wait")
ACCEPTED_BY = Symbol("x-opt-topic-accepted-by")
ACCEPTED_COUNT = Symbol("x-opt-topic-accepted-count")
ACCEPTED_TAG = Symbol("x-opt-topic-accepted-tag")
STORES = Symbol("x-opt-topic-stores")
STORED_BY = Symbol("x-opt-topic-stored-by")
STORED_COUNT = Symbol("x-opt-topic-stored-count")
PROCESSED_BY = Symbol("x-opt-topic-processed-by")
PROCESSED_COUNT = Symbol("x-opt-topic-processed-count")
START = Symbol("x-opt-topic-start")
START_TAG = Symbol("x-opt-topic-start-tag")
PATIENCE = Symbol("x-opt-topic-patience")
WHEN_SLOW = Symbol("x-opt-topic-when-slow")
STARTS = Symbol("x-opt-topic-starts")
MAP_ENTRIES = Symbol("x-opt-topic-map-entries")
"""Entries of a subscriber's whole map, of which an attach carries a part (C-4)."""
MAP_PART = Symbol("x-opt-topic-map-part")
"""Further entries of it, of a flow."""

# --- connection properties between routers ----------------------------------------------------------------------------

ROUTER_INCARNATION = Symbol("x-opt-router-incarnation")
ROUTER_PROTOCOL_MIN = Symbol("x-opt-router-protocol-min")
ROUTER_PROTOCOL_MAX = Symbol("x-opt-router-protocol-max")
ROUTER_NONCE = Symbol("x-opt-router-nonce")
ROUTER_COST = Symbol("x-opt-router-cost")
ROUTER_CHALLENGE = Symbol("x-opt-router-challenge")
ROUTER_PROOF = Symbol("x-opt-router-proof")
"""Of the attach of the link for frames, the answer to the challenge (K-1b)."""

# --- routed links (R-1 to R-4) ----------------------------------------------------------------------------------------

ROUTER_PREFIX = "x-opt-router-"
"""Link properties that only routers set: those of a client are dropped (R-4)."""
SERVES = Symbol("x-opt-router-serves")
"""Of a service's open: the prefixes of its addresses, an array or list of strings."""
ROUTER_CONTAINER = Symbol("x-opt-router-container")
ROUTER_USER = Symbol("x-opt-router-user")
ROUTER_LINK = Symbol("x-opt-router-link")
ROUTER_VHOST = Symbol("x-opt-router-vhost")
ROUTER_TO = Symbol("x-opt-router-to")
"""Of an attach between routers: the incarnation whose service is meant."""
ROUTER_HOPS = Symbol("x-opt-router-hops")

# --- work queues over AMQP (docs/workqueue.md) ------------------------------------------------------------------------

DELIVERY_TIME = Symbol("x-opt-delivery-time")
"""Message annotation: when an item is ready, in milliseconds since 1970. Of a `modified`: when the subscriber wants the
next attempt (E-4a). The name is not ours alone, and neither is the next one."""
DELIVERY_DELAY = Symbol("x-opt-delivery-delay")
"""Message annotation: the same as milliseconds from now."""
QUEUE_KEY = Symbol("x-opt-queue-key")
QUEUE_HANDLE = Symbol("x-opt-queue-handle")
"""Delivery annotation: the handle of a reserved item."""
QUEUE_TIMEOUT = Symbol("x-opt-queue-timeout")
"""Link property: how long a reservation holds, in milliseconds."""

# --- journals (docs/journals.md) --------------------------------------------------------------------------------------

STREAM_OFFSET = Symbol("x-stream-offset")
"""Message annotation: the position of a message in its journal; the name that clients of streams look for."""
JOURNAL_PREFIX = b"x-opt-journal-"
JOURNAL_TIME = Symbol("x-opt-journal-time")
"""Message annotation: when the journal stored the message."""
JOURNAL_TOPIC = Symbol("x-opt-journal-topic")
"""Message annotation: the topic or pattern through which it came to the journal."""
STREAM_OFFSET_SPEC = Symbol("rabbitmq:stream-offset-spec")
"""Filter of a source: where its reader starts (J-19)."""

# --- info of errors ---------------------------------------------------------------------------------------------------

SUBSCRIPTIONS = Symbol("subscriptions")
"""Of a rejection: the first subscriptions that rejected (I-3)."""
COUNT = Symbol("count")
"""With it: how many have."""
FAILOVER_LIST = Symbol("failover-server-list")
"""Of a redirect, and a property of a router's open: other routers to connect to."""

SAME_EVERYWHERE = Symbol("x-opt-topic-same-everywhere")
"""Of a detach, true: every other router would refuse the link, too, so its client stays (A-1)."""

# --- names of AMQP and of others, that several packages use -----------------------------------------------------------

ANONYMOUS_RELAY = Symbol("ANONYMOUS-RELAY")
"""Of a connection, offered: a sender without an address sends each message to the address in its `to`."""
DELETE_ON_CLOSE: Fields = {Symbol("lifetime-policy"): Described(ULong(0x2B), [])}
"""Node properties (3.5.10): what was made for a link ends with it."""
COPY = Symbol("copy")
"""Distribution mode: every subscription gets every message (3.5.7)."""
NETWORK_HOST = Symbol("network-host")
HOSTNAME = Symbol("hostname")
PORT = Symbol("port")
SCHEME = Symbol("scheme")
"""Of a redirect's info and of an entry of the failover list: `amqps` where the router itself listens with TLS."""
PARTITION_KEY = Symbol("x-opt-partition-key")
"""Of Azure Event Hubs: messages of one key stay in order."""
OUTCOMES = (
    Symbol("amqp:accepted:list"),
    Symbol("amqp:rejected:list"),
    Symbol("amqp:released:list"),
    Symbol("amqp:modified:list"),
)
"""Every outcome a subscriber may state (3.5.3)."""


def number_in(properties: Fields | None, key: Symbol) -> int | None:
    """Return an unsigned number in link properties; None if it is not there or something else."""
    value = None if properties is None else properties.get(key)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
