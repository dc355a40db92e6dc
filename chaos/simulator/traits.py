"""How a simulated world differs from the plainest one. Every trait is a fact of some real network or application."""

from __future__ import annotations

from dataclasses import dataclass

MORTAL_TIMEOUT_S = 100_000.0
"""T_pub of publishers that are killed for good: longer than any world lasts."""


@dataclass(frozen=True, slots=True)
class Traits:
    """Knobs of a world; all of it is legal. A scenario written before a knob existed has it off."""

    pipelines: bool = False
    """Publishers send a flow behind the attach without waiting."""
    abandons: bool = False
    """Publishers give up their oldest delivery when they attach again."""
    never: bool = False
    """Subscribers ask for the expiry policy `never`."""
    map_bound: int = 1000
    timeout_s: int = 90
    """T_sub the subscribers ask for; above 60 s a new subscription is provisional first (A-10)."""
    refuses: bool = False
    """Subscribers also reject, release and fail deliveries (E-4a); the shipped client releases locally."""
    stock_publisher: bool = False
    """The last publisher keeps no map over a reconnect (c.5)."""
    resuming_publisher: bool = False
    """The last publisher resumes its link as AMQP says, without the capability: what is not in the reply's map it sends
    under new tags (A-3b)."""
    reuses_tags: bool = False
    """The stock publisher uses an empty tag, and uses it again as soon as it has settled it (E-3)."""
    stock_subscriber: bool = False
    """The last subscriber keeps no map over a reconnect and settles as it answers (c.3, c.5)."""
    batches: bool = False
    """A router's turn takes all that one read brings, and its watch several changes at once."""
    presettled_publisher: bool = False
    """The last publisher sends pre-settled (c.3, at-most-once)."""
    settled_subscriber: bool = False
    """The last subscriber asks for settled deliveries (c.3, at-most-once)."""
    large: bool = False
    """Bodies travel in parts and wait for credit between routers (I-1a, T-5, T-6)."""
    reports: bool = False
    """Topics report rejections to the publisher (on-reject=report)."""
    shipped: bool = False
    """Clients with a map are the cores of `oncewire.client`; else they follow P-a and S-a in code of their own."""
    durable: bool = False
    """The journals of shipped clients survive their process; effects and outcomes are one transaction (S-1)."""
    out_of_order: bool = False
    """Applications of shipped subscribers finish deliveries in any order (S-a)."""
    in_doubt: bool = False
    """Shipped publishers send again, marked, what was unsettled in a session that expired (A-5)."""
    session_end: bool = False
    """Clients ask for the expiry policy `session-end` (A-9)."""
    late_joiner: bool = False
    """The last subscriber comes when half of the messages have been sent."""
    late_loss: bool = False
    """Clients of a router that died read what was under way, and see the loss later (N-1)."""
    slow_store: bool = False
    """Requests to etcd are carried out later, in any order, also when their sender is dead; replies may be lost."""
    leases: bool = False
    """Leases end by etcd's clock and routers fence by their own (K-3); else a dead router's lease ends at any time."""
    topics: int = 1
    """Publishers send to so many topics, and subscribers ask for a pattern that matches all of them at first."""
    slow_percent: int = 0
    """With leases: router 0's clock runs this much slow and router 2's as much fast (N-3 allows 33)."""
    narrows: bool = False
    """Shipped subscribers that attach again take smaller frames, which do not hold the maps they have (C-4)."""
    rounds: bool = False
    """Routers are of a release that takes no rest of a map behind its attach, which is a round then (C-4)."""
    short_sessions: bool = False
    """Publishers ask for a short T_pub in every other attach, as processes that follow each other may (K-5d)."""
    unread: bool = False
    """Attaches are put over what the router's view shows, as where many come at once (A-2b)."""
    pieces: bool = False
    """A router hands a message to one of its subscriptions in a turn, as where there are thousands (T-10)."""
    together: bool = False
    """Writes of a router that wait for etcd may go in one transaction, and have one revision (A-2e)."""
    mortals: int = 0
    """So many publishers behind the first one may be killed for good, and ask for a T_pub that does not end (K-5)."""
    patience_s: int = 0
    """How long a policy lets subscribers make no progress (K-5b); 0: without limit."""
    same_names: bool = False
    """All publishers have the same container-id and link name, and all subscribers, each with a login of its own."""
    expels: bool = False
    """With it: it ends their subscriptions then; else it detaches their links."""
    longest_s: int = 0
    """Longest time-out that a policy grants subscriptions and sessions (K-5c); 0: what they ask for."""
    require: int = 0
    """Shipped publishers require so many subscriptions for each message (I-3c)."""
    require_processed: int = 0
    """With it: and so many that process it (I-3g)."""
    storers: int = 0
    """So many of the first subscribers store messages for others (I-3g); members of a shared subscription do not."""
    waits: bool = False
    """They wait for subscriptions where too few have processed what they have sent (I-3f)."""
    sharers: int = 0
    """So many of the last subscribers are members of one shared subscription (SH-1)."""
    declines: bool = False
    """The first of them never does what it gets (undeliverable-here, SH-5): it is of no use, and stays."""
    groups: int = 0
    """The shared subscription keeps so many groups in order, and some messages have none (SH-6); 0: it keeps none."""
    pulls: bool = False
    """Subscribers give credit for the next delivery when one comes, and not when they answer it (SH-2)."""
    filters: int = 0
    """Subscribers have filters (E-9), the first one that of this number in `filters.FILTERS`; 0: none has."""
    remembers: int = 0
    """Ids of each publisher that shipped subscribers keep, to drop copies of its messages (D-3); 0: they drop none."""
    lingers: bool = False
    """Applications of subscribers take long, so that a copy may come before the first one is done (D-3)."""
    on_empty: int = 0
    """A policy accepts (1), releases (2) or rejects (3) what no subscription matches (I-3d); 0: there is none."""
    attempts: int = 0
    """Failed attempts after which a policy counts a delivery as rejected (E-4a); 0: ten, more than one makes."""
    delay_ms: int = 0
    """Subscribers that fail want the next attempt after so long (E-4a); 0: they do not say."""
    ttl_s: int = 0
    """Longest life of a message that was not sent to a subscription, by a policy (E-10); 0: without end."""

    letters: int = 0
    """So many subscribers ask for dead letters, and the policy of all topics names their topic (I-3e)."""
    reload_at_sync: bool = False
    """Operators take their topic away while a letters stream is on its way to another router."""
    late_letters: int = 0
    """They come after so many seconds."""
    letter_wait: int = 0
    """Letters wait so many seconds while nobody asks for them (I-3e); 0: without end."""

    streams: int = 0
    """Every so-many-th message is large and comes in parts, over time (L-1); 0: none is."""
    aborts: bool = False
    """Publishers give up some of what they are sending, in the middle of it (L-5)."""

    reads_late: bool = False
    """Subscribers are behind a slow network: what is sent to them, also of a large message, waits to be read (L-4)."""

    pairs: bool = False
    """A client's subscriber and publisher attach in one AMQP session and one write (A-2d)."""


PLAIN = Traits()
