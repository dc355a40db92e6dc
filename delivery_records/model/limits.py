"""Every limit and time of the record core, each with its reason. Times are seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

KIB: Final = 1024
MIB = 1024 * KIB

WINDOW_DELIVERIES = 1024
"""W: keeps a publisher's map in one frame of 64 KiB and covers 100 ms at 10,000 messages a second."""
FIRST_CREDIT: Final = 256
"""Of a publisher without a map, before half as many of its messages have come: what it buffers for want of a session
window is lost when it closes, so the window is as wide, whatever the size of its messages turns out to be (C-6)."""
WINDOW_BYTES = 64 * MIB
"""Bodies one publisher may make its ingress hold."""
ROUTER_BYTES = 1024 * MIB
"""Bodies and unsettled maps one router holds in all: sixteen full windows, on a machine of 2 GiB (C-6)."""
ENTRY_BYTES: Final = 512
"""What an entry of a window or of a presented map counts in it: a tag, its slot, and their places in two tables."""
MAP_SHARE: Final = 8
"""One part in so many is kept back for maps: a publisher that resumes is admitted where bodies have filled the rest."""
ROOM_CHECK_S = 1.0
"""Who waits for room gets what little there is after this: a look at everybody costs too much in each turn (C-6)."""
FINISHER_PATIENCE_S = 30.0
"""Whoever may complete messages over the limit and gets no further for so long, as long as T_resend, is passed over."""
SUBSCRIPTION_TIMEOUT_S = 60.0
"""T_sub when the client asks for none: long enough for a failover and a restart of the client."""
SUBSCRIPTION_TIMEOUT_CAP_S = 86_400.0
"""`never` and longer wishes become this: a subscriber that is gone for a day holds its topic no longer (K-5)."""
PUBLISHER_TIMEOUT_S = 86_400.0
"""T_pub: the unsettled map must outlive outages."""
PUBLISHER_TIMEOUT_CAP_S = 7 * 86_400.0
PROVISIONAL_TIMEOUT_S = 60.0
"""T_prov: a subscription resurrected by a stale attach dies after this (A-10). A link that is still attached after
it has kept its connection's idle time-out, which a dead client cannot, and counts as alive."""
PROOF_RETRY_S = 1.0
"""A subscription's proof of life that could not be written is written again after this (A-10)."""
PROOF_TIMEOUT_S = 10.0
"""T_life: without an answer to the echo a publisher is detached (A-4), a subscriber keeps what it has (A-10)."""
RESEND_TIMEOUT_S = 30.0
"""T_resend: a publisher that neither repeats its map nor goes on is detached (I-9)."""
RESEND_FAILURES = 3
"""Times a publisher may miss T_resend within T_pub before its key is deleted (I-9)."""
SETTLE_TIMEOUT_S = 30.0
"""T_settle: a publisher that got outcomes and settles nothing is detached."""
UNKNOWN_PUT_S = 10.0
"""How long a put of unknown fate is waited for in the watch (K-2a)."""
PUT_RETRIES = 5
"""Retries of a compare-and-put that lost, 50 ms x 2^n apart (K-2a)."""
PUT_RETRY_BASE_S = 0.05
GRACE_S = 1.0
"""After a router's lease expired a joiner waits this much longer: clocks run at different rates (A-6, N-3)."""
ORPHAN_RANK_STEP_S = 2.0
"""Routers propose the expiry of a dead router's keys one after the other, by rank (K-5)."""
EXPIRY_RETRY_S = 1.0
"""A proposal of expiry that could not reach etcd is repeated after this."""
STOCK_REPLY_WAIT_S = 3.0
"""A subscriber without the capability gets its attach reply after the barrier, but not later than this (A-6b)."""
BARRIER_PERIOD_S = 0.01
"""BARRIERs of waiting joins are collected for this long (A-6a)."""
BARRIER_REPEAT_S = 0.2
"""A BARRIER without an answer is repeated."""
BARRIER_REPEAT_CAP_S = 5.0
"""Longest pause between two BARRIERs to a router that does not answer; HELLO states what it has applied, too (A-6a)."""
REDUCTION_QUIET_S = 1.0
"""A part of a map is worked on until nothing was resumed, answered or settled for this long (C-4)."""
REDUCTION_ROUNDS = 2
"""Rounds in which nothing was answered or settled before the link is refused (C-4)."""
MAX_ATTEMPTS = 10
"""Failed attempts before a delivery counts as rejected (E-4a, poison limit)."""
RELEASES_PER_ATTEMPT = 100
"""A loop of releases counts as one failed attempt (E-4a)."""
RETRY_FIRST_S = 1.0
"""Wait before a second release, or the first failed attempt, is sent again; it doubles each time (E-4a)."""
RETRY_CAP_S = 60.0
"""Longest wait before the next attempt: a subscriber that recovers gets what it released within a minute (E-4a)."""
RETRY_DOUBLINGS: Final = 64
"""More than any cap needs; keeps the wait a finite number."""
CREDIT_LOOK_S = 0.25
"""An ingress hears within this of credit behind what it has used up, while nothing of that is answered (SH-2)."""
EXPIRY_LOOK_S = 1.0
"""What is out of time, and comes back from a member that had no room for it, is found within this (E-10)."""
EXPIRED_TAGS = 32
"""Tags in one line of the log: a queue that expires at once must not fill it (E-10)."""
CHANNEL_CREDIT_BYTES = 4 * MIB
"""Bodies that may be under way from one ingress to one egress; both ends start from it (T-5)."""
STREAM_FRAMES = 65_536
"""Frames of one publisher that wait for byte credit; more means many resyncs at once: start over (T-4)."""
MESSAGE_CHUNK_BYTES = 32 * KIB
"""Larger bodies travel in pieces, so that control frames pass between them (I-1a)."""
LARGE_BYTES: Final = MIB
"""A delivery that is longer is large: it goes on before it is whole, and nobody keeps it (L-1)."""
LARGE_BYTES_WITHOUT_MAP: Final = 16 * MIB
"""The same for a publisher without a map, a quarter of its window: it sends as a new message what is needed again."""
LARGE_AHEAD_BYTES: Final = MIB
"""What a subscription is sent of a large delivery beyond what it has taken: 10 ms at 100 MB/s, and four such fill the
credit of a channel for as long as they are under way (L-4)."""
LARGE_STALL_S: Final = 10.0
"""T_large: nothing more of a large delivery for so long, as long as T_life: those who wait behind it go on (L-5)."""
LARGE_LOOKS: Final = 4
"""Looks within that time."""
PROBE_S = 0.5
"""A channel with frames not known to have arrived is probed after this (T-9)."""
HELLO_RETRY_S = 0.05
HELLO_RETRY_CAP_S = 5.0
PARKED_FRAMES = 4096
"""Frames of one publisher that wait for the watch; more: the channel restarts (T-3)."""
PARKED_S = 5.0
HELD_PRESETTLED = 64
"""Pre-settled messages that wait for one subscriber; before its first credit a whole window of them may (I-1c)."""
STEALS = 2
"""Live links of one identity stolen within STEAL_WINDOW_S before the next attach is refused (A-8a)."""
STEAL_WINDOW_S = 10.0
STEAL_REFUSAL_S = 30.0
RESUME_FLAGS_IGNORED = 3
"""Transfers with resume=true that are discarded before the link is detached (A-3a)."""
OWING_NAMES = 8
"""Names in the answer to a publisher that asks who owes it (the count is always stated)."""
PAST_EPOCHS = 10_000
"""Former epochs of subscriptions that are remembered, so that their late ACKs count (I-2)."""
DRAIN_LIMIT_S = 10.0
"""The longest a router that is to stop waits for what is unsettled: a slow subscriber answers within it (K-8a)."""
DRAIN_PATIENCE_S = 0.5
"""Longest wait for a client that resumes: it loses nothing by moving at once, and must not stand still (K-8a)."""
DRAIN_CHECK_S = 0.02
"""Between two looks at who is at rest: short against the time a client needs to connect elsewhere (K-8a)."""
END_WAIT_S = 10.0
"""T_end: as long as a drain waits. Clients wait longer for the answer to a detach, an end or a close (A-9a)."""
ANNOTATIONS_BYTES: Final = 4 * KIB
"""What one subscription's *modified* may add to one delivery, keys and values: some lines for each of ten attempts. A
whole window of such is 4 MiB, a sixteenth of its bodies (E-4b)."""
LETTER_ERROR_CHARS = 256
"""Of the error with which a subscription rejected a message, kept for its dead letter: a condition and a sentence."""
LETTER_NOTE_S = 60.0
"""One publisher's failures, or letters that wait, are logged once in so long: each message of a stream may fail."""
ORPHAN_NONCES = 10_000
"""Puts of unknown fate that are remembered; the oldest is forgotten first (K-2a)."""


class OnEmpty(Enum):
    """The outcome of a message that no subscription is done with (I-3d)."""

    ACCEPT = "accept"
    RELEASE = "release"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """What an operator decides for the messages of one topic (I-3d)."""

    on_empty: OnEmpty = OnEmpty.RELEASE
    """For publishers without the capability."""
    on_empty_exactly_once: OnEmpty = OnEmpty.ACCEPT
    """For publishers with it."""
    report_rejections: bool = False
    """on_reject=report: the publisher gets *rejected* when a subscription rejected."""
    max_attempts: int = MAX_ATTEMPTS
    retry_first_s: float = RETRY_FIRST_S
    retry_cap_s: float = RETRY_CAP_S
    dead_letter: str = ""
    """The topic for what subscriptions fail (I-3e), as routers know it; empty: there is none."""
    dead_letter_wait_s: float = 0.0
    """How long letters wait while nobody subscribes to that topic (I-3e); 0: without end."""
    is_dead_letter: bool = False
    """Some rule names this very topic as `dead_letter`."""
    ttl_s: float = 0.0
    """Longest life of a message that was not sent to a subscription (E-10); 0: without end, whatever it says itself."""


PolicyOf: TypeAlias = Callable[[str], TopicPolicy]
"""A topic's policy (I-3d), the topic as routers know it (A-2c)."""


READ_ATTACHES: Final = 16
"""Attaches under way at which the next one reads its key first (A-2b); thousands that come back at once do not."""
PIECE: Final = 512
"""Deliveries of one message that a turn hands to egresses; a costly filter counts as 256 (T-10): some milliseconds."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What an operator may set; the other limits are protocol constants."""

    window: int = WINDOW_DELIVERIES
    window_bytes: int = WINDOW_BYTES
    router_bytes: int = ROUTER_BYTES
    subscription_timeout_s: float = SUBSCRIPTION_TIMEOUT_S
    subscription_timeout_cap_s: float = SUBSCRIPTION_TIMEOUT_CAP_S
    publisher_timeout_s: float = PUBLISHER_TIMEOUT_S
    publisher_timeout_cap_s: float = PUBLISHER_TIMEOUT_CAP_S
    proof_timeout_s: float = PROOF_TIMEOUT_S
    resend_timeout_s: float = RESEND_TIMEOUT_S
    settle_timeout_s: float = SETTLE_TIMEOUT_S
    grace_s: float = GRACE_S
    stock_reply_wait_s: float = STOCK_REPLY_WAIT_S
    end_wait_s: float = END_WAIT_S
    large_ahead_bytes: int = LARGE_AHEAD_BYTES
    """No setting, and so the next one: a simulator makes them small (L-4)."""
    large_piece_bytes: int = MESSAGE_CHUNK_BYTES
    read_attaches: int = READ_ATTACHES
    """No setting either: in some simulated worlds no attach reads."""
    piece: int = PIECE
    """Nor this one: some simulated worlds have pieces of one."""
    policy: TopicPolicy = field(default_factory=TopicPolicy)
    """Of topics that no rule of the operator names."""

    def __post_init__(self) -> None:
        """Reject settings no router can run with."""
        if self.window < 1:
            raise ValueError("window must be at least 1 delivery")
        if self.window_bytes < 1:
            raise ValueError("window_bytes must be at least 1 byte")
        if self.router_bytes < 1:
            raise ValueError("router_bytes must be at least 1 byte")
