"""What an egress remembers of one delivery, and of one publisher's stream.

The state of an entry answers three questions: has the subscriber got the delivery in its map, is it done with it, and
is the body here. `ENTRY_NEXT` has every step that may be taken. KNOWN and DONE_PRESENTED stand in the reply's map and
were not resumed: AMQP wants each of these resumed once on the new link (A-7), so they are not SENT and DONE. The states
with HELD have a body that waits for credit, or a place for one (L-7); a SYNC drops it, because the ingress repeats it
(E-2). SKIPPED and EXPIRED are done for the ingress and unknown to the subscriber: they take no place in its map, and no
frame settles them. EXPIRED does not count where E-2 looks for the start: it may lie behind deliveries that are held and
were never sent (E-10).

An entry has two names. Its network tag is valid as long as the publisher's session is, over routers and links. Its
number is valid within one publisher epoch, so a `SyncState` has the numbers of its SYNC, and the next SYNC of that
publisher gives the same entries new ones (T-7). A tag may come again under another number of the same epoch: the
publisher has settled the first delivery, and the egress settles that one at the subscriber before it sends the second
(E-3). Acknowledgements are collected in the stream, as runs of numbers for each outcome, until the turn ends.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from delivery_records.model.annotated import merged
from delivery_records.model.endpoint import Endpoint
from delivery_records.model.letter_topics import gets_letters
from delivery_records.model.messages import Run, Sync
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.runs import add_run
from delivery_records.model.tags import OWN_TAG_AT, SESSION_AT, is_letter_tag, session_of
from delivery_records.model.topics import matches
from delivery_records.model.turn import Turn


class State(Enum):
    """State of one entry of a subscriber's map, as its egress knows it."""

    __hash__ = object.__hash__  # as in DeliveryOutcome: each step looks its table up

    KNOWN = "known"
    """In the reply map without outcome, not resumed on this link; its body was not repeated yet (A-7)."""
    KNOWN_HELD = "known_held"
    """The same; its body is here and waits for credit."""
    HELD = "held"
    """Waits for credit; not transferred on this link."""
    SENT = "sent"
    DONE = "done"
    """The subscriber stated the outcome on this link, and waits for the settlement."""
    DONE_PRESENTED = "done_presented"
    """In the reply map with its outcome, not resumed on this link: a settled resume settles it (A-7)."""
    DONE_SETTLED = "done_settled"
    """The subscriber settled it itself, or it went out settled: no frame settles it."""
    AGAIN = "again"
    """The subscriber wants it again (E-4a); settled at S, no body kept."""
    AGAIN_HELD = "again_held"
    """The same; its body is here again and waits for credit."""
    SKIPPED = "skipped"
    """Precedes the subscription's start: acknowledged, unknown to S (E-2)."""
    EXPIRED = "expired"
    """Its time was over before it was sent: acknowledged as expired, unknown to S (E-10)."""
    GONE = "gone"
    """Settled and forgotten; only a queue may still name it."""

    @property
    def shown(self) -> str:
        """The word for operators: what the subscriber has, however it is held or settled."""
        return self.value.partition("_")[0]


ENTRY_NEXT: Final = {
    State.KNOWN: (State.KNOWN_HELD, State.SENT, State.DONE_PRESENTED, State.AGAIN, State.GONE),
    State.KNOWN_HELD: (State.KNOWN, State.SENT, State.DONE_PRESENTED, State.AGAIN_HELD, State.GONE),
    State.HELD: (State.SENT, State.EXPIRED, State.GONE),
    State.SENT: (
        State.DONE,
        State.DONE_SETTLED,
        State.AGAIN,
        State.GONE,
        State.HELD,
        State.KNOWN,
        State.KNOWN_HELD,
        State.AGAIN_HELD,
    ),
    State.DONE: (State.GONE,),
    State.DONE_PRESENTED: (State.GONE,),
    State.DONE_SETTLED: (State.GONE,),
    State.AGAIN: (State.AGAIN_HELD, State.SENT, State.GONE),
    State.AGAIN_HELD: (State.AGAIN, State.SENT, State.GONE),
    State.SKIPPED: (State.GONE,),
    State.EXPIRED: (State.GONE,),
    State.GONE: (),
}
"""E-3: held, sent; E-10: expired; E-4: done; E-4a: again; E-2: no longer held; L-5, L-6: what it was before it was
sent; E-2, E-5, E-6: gone. docs/protocol.md draws it."""

# States that come with every delivery, as module names: to look a member up in its class costs as much as a call.
HELD: Final = State.HELD
SENT: Final = State.SENT
DONE: Final = State.DONE
GONE: Final = State.GONE
HAS_BODY: Final = {State.KNOWN: State.KNOWN_HELD, State.AGAIN: State.AGAIN_HELD}
"""What has a place in the map already, when its body waits for credit; the other way round when the body is dropped."""
NO_BODY: Final = {held: free for free, held in HAS_BODY.items()}
IN_REPLY: Final = (State.KNOWN, State.KNOWN_HELD, State.DONE_PRESENTED)
"""In the reply map, and not resumed on this link yet (A-7)."""
WANTED: Final = (State.AGAIN, State.AGAIN_HELD)
"""The subscriber wants it again (E-4a)."""
WAITING: Final = (State.SENT, State.HELD, State.KNOWN_HELD, State.AGAIN_HELD)
"""Sent, or here with its body: nothing more is needed from the ingress (E-3)."""
OPEN_AT_SUBSCRIBER: Final = (State.SENT, State.KNOWN, State.KNOWN_HELD)
"""The subscriber has it and has not said what became of it."""
DONE_AT_SUBSCRIBER: Final = (State.DONE, State.DONE_SETTLED, State.DONE_PRESENTED)
"""The subscriber is done with it."""
NEVER_SENT: Final = (State.SKIPPED, State.EXPIRED)
"""The subscription is done with it and the subscriber does not know it: it is in no map, and no frame settles it."""
MAPPED: Final = (*DONE_AT_SUBSCRIBER, *OPEN_AT_SUBSCRIBER)
"""The subscriber's own map holds it (C-4)."""
IN_PLACE: Final = (*MAPPED, *WANTED)
"""The entry takes a place in the subscriber's map, or keeps one."""


NO_NUMBER: Final = 1 << 60
"""A number that no delivery reaches."""


class Entry:
    """One delivery at an egress."""

    __slots__ = (
        "annotations",
        "attempt",
        "large",
        "message",
        "message_format",
        "number",
        "outcome",
        "presettled",
        "redelivered",
        "state",
        "sync",
        "tag",
    )

    def __init__(self, tag: bytes, state: State) -> None:
        """An entry without a publisher: the first SYNC of its session names one."""
        self.tag = tag
        self.state = state
        self.number = -1
        self.sync: SyncState | None = None
        self.outcome: DeliveryOutcome | None = None
        self.presettled = False
        """Its publisher sent it settled (I-1c). No state: it holds from first to last, in every state."""
        self.redelivered = False
        self.attempt = 0
        self.message = b""
        self.message_format = 0
        self.annotations: Mapping[bytes, bytes] | None = None
        """What its subscription has added to the message so far (E-4b)."""
        self.large: LargeBody | None = None
        """Its body comes in parts, or is not here (L-2, L-7)."""

    def step(self, state: State) -> None:
        """Go on to a state, or stay. Only the steps of ENTRY_NEXT are taken: another one is a fault of ours.

        What comes with every delivery is done in place, behind a look at the former state: a call costs too much there.
        """
        assert state is self.state or state in ENTRY_NEXT[self.state], f"{self.state} -> {state}"
        self.state = state

    @property
    def has_place(self) -> bool:
        """It counts in the map already: it stands in the reply map, or was there and is wanted again."""
        return self.state in IN_REPLY or self.state in WANTED


class LargeBody:
    """The body of a large delivery at an egress: what has come and was not sent, or the place of one (L-2, L-7)."""

    __slots__ = (
        "before",
        "handed",
        "is_place",
        "is_taken_up",
        "is_whole",
        "pieces",
        "reported",
        "reported_at",
        "since",
        "sync",
        "taken",
    )

    def __init__(self, *, is_place: bool = False) -> None:
        """Nothing has come, and with `is_place` nothing will: the publisher must send it again (L-7)."""
        self.is_place = is_place
        self.is_taken_up = False
        """An entry has it; else its subscription does not want the delivery."""
        self.sync: SyncState | None = None
        """The stream that it comes from: behind another SYNC its ingress knows nothing of it (L-4)."""
        self.pieces: list[bytes] = []
        """What waits for the delivery's turn, behind its first piece, which the entry has."""
        self.is_whole = False
        self.handed = 0
        """Bytes given to the link."""
        self.taken = 0
        """Bytes that have left for the subscriber."""
        self.reported = 0
        """The same, as the ingress knows it (L-4)."""
        self.reported_at = 0.0
        self.before = State.HELD
        """State of its entry before it began to be sent."""
        self.since = 0.0
        """When a part of it came last."""


def was_sent(entry: Entry | None) -> bool:
    """E-2, E-10: it shows that what precedes it need not be sent."""
    return entry is not None and entry.state is not State.EXPIRED


class Origin(NamedTuple):
    """Of a stream: the router of its ingress, the publisher's session, and what its tags begin with."""

    rid: int
    session: int
    prefix: bytes


class SyncState:
    """One publisher's stream at one egress, from a SYNC on."""

    __slots__ = (
        "_dirty",
        "_growing",
        "_growing_outcome",
        "_runs",
        "annotated",
        "entries",
        "epoch",
        "first_new",
        "held",
        "ingress_rid",
        "is_letters",
        "key",
        "named",
        "numbers",
        "places",
        "prefix",
        "serial",
        "session",
    )

    def __init__(
        self, egress: Endpoint, sync: Sync, origin: Origin, entries: dict[bytes, Entry], dirty: list[SyncState]
    ) -> None:
        """Start at a SYNC. `entries`: the egress' of this session; `dirty`: the streams with ACKs to send."""
        self.is_letters = sync.is_letters
        """What comes are letters (I-3e)."""
        self.first_new = NO_NUMBER
        """E-3: from this number on nothing was sent to S elsewhere, as far as is known here."""
        self.serial = 0
        """Of its SYNC, where it is a member's (SH-4)."""
        self.key = egress.key
        self.named = egress.epoch
        """A-10: by which epoch its ingress names the subscription, and so what the answers name."""
        self._dirty = dirty
        self.epoch = sync.publisher_epoch
        self.ingress_rid = origin.rid
        self.session = origin.session
        self.prefix = origin.prefix
        self.entries = entries
        self.numbers: dict[int, Entry] = {}
        self.annotated: dict[int, Mapping[bytes, bytes]] = {}
        """What its subscription has added to deliveries that are to come (E-4b)."""
        self.held: OrderedDict[Entry, None] = OrderedDict()
        """New deliveries that wait for credit or room, oldest first."""
        self.places = 0
        """Places its deliveries take in the subscriber's map (C-4)."""
        self._runs: dict[DeliveryOutcome, list[list[int]]] = {}
        self._growing_outcome: DeliveryOutcome | None = None
        self._growing: list[int] = []
        """The run that was added to last, and its outcome."""

    def let_go(self) -> None:
        """The link is gone. Entries refer to it: only the collector, which stops all, would free them together."""
        self.entries = {}
        self.numbers.clear()
        self.held.clear()

    def begin(self, sync: Sync, former: SyncState | None, former_epochs: Sequence[int]) -> None:
        """The SYNC that it starts at.

        E-3: what S may have had of a former ingress, or on a former link, is in U of the first SYNC on this link.
        """
        for epoch in former_epochs:
            if epoch in sync.subscription_epochs:
                self.named = epoch
        if former is not None and former.epoch == self.epoch:
            self.first_new = former.first_new
        elif not self.is_letters:
            self.first_new = sync.numbers[-1] + 1 if sync.numbers else 0

    def annotate(self, number: int, added: Mapping[bytes, bytes]) -> None:
        """E-4b: its ingress says so, of former links of S or of other members; what was said here is newer."""
        entry = self.numbers.get(number)
        if entry is None:
            self.annotated[number] = added
        else:
            entry.annotations = merged(added, entry.annotations or {}) or entry.annotations

    def forget_annotated(self, runs: Iterable[Run]) -> None:
        """E-5: it does not come any more."""
        for first, count in runs:
            named: Sequence[int] = range(first, first + count)
            if count > len(self.annotated):  # however long the run is, the work is bounded by what is here
                named = [number for number in self.annotated if number in named]
            for number in named:
                self.annotated.pop(number, None)

    def take_tag(self, tag: bytes) -> Entry | None:
        """E-3: take out the delivery that had this tag before; None if there is none."""
        former = self.entries.pop(tag, None)
        if former is not None:
            self.numbers.pop(former.number, None)
        return former

    def is_former(self, tag: bytes, epoch: int, number: int) -> bool:
        """E-3: within one epoch another number is another delivery, and the one here was settled before it."""
        entry = self.entries.get(tag)
        return entry is not None and epoch == self.epoch and entry.number != number

    def is_locked_out(self, entry: Entry) -> bool:
        """C-4: a full map takes one delivery of a publisher that has none in it.

        I-3e: of a letters stream also a letter that is older than all of them: a later one may be of a former ingress.
        """
        if not self.places:
            return True
        if not self.is_letters:
            return False
        number = entry.number
        return all(each.number > number for each in self.numbers.values() if each.state in IN_PLACE)

    def acknowledge(self, number: int, outcome: DeliveryOutcome) -> None:
        """Have an ACK sent at the end of this turn; consecutive numbers become one run."""
        run = self._growing
        if outcome is self._growing_outcome and run[0] + run[1] == number:
            run[1] += 1
            return
        if not self._runs:
            self._dirty.append(self)
        runs = self._runs.setdefault(outcome, [])
        add_run(runs, number)
        self._growing_outcome, self._growing = outcome, runs[-1]

    def take_runs(self) -> dict[DeliveryOutcome, list[list[int]]]:
        """What is to be acknowledged; forgotten here."""
        runs, self._runs = self._runs, {}
        self._growing_outcome = None
        return runs


def _presented(tag: bytes, outcome: DeliveryOutcome | None) -> Entry:
    """An entry of the map that the subscriber presents (A-6)."""
    if outcome is not None and not outcome.is_done:
        entry = Entry(tag, State.AGAIN)  # E-4a: left out of the reply; E-2 must not take it for one before the start
        if outcome is DeliveryOutcome.MODIFIED_FAILED:
            entry.outcome = outcome  # its ingress is to hear of it, when it sends the message
            entry.attempt = 1
        return entry
    entry = Entry(tag, State.DONE_PRESENTED if outcome is not None else State.KNOWN)
    entry.outcome = outcome
    return entry


def presented_map(
    turn: Turn, unsettled: Mapping[bytes, DeliveryOutcome | None], topic: str
) -> dict[bytes, dict[bytes, Entry]]:
    """The presented map by session; what nobody here can settle any more is settled, hence left out (A-6, E-6)."""
    sessions: dict[bytes, dict[bytes, Entry]] = {}
    live: dict[tuple[bytes, bool], bool] = {}
    for tag, outcome in unsettled.items():
        part = tag[SESSION_AT:OWN_TAG_AT]
        kind = (part, is_letter_tag(tag))  # decides for all that share it: a map may have thousands of tags
        found = live.get(kind)
        if found is None:
            found = live[kind] = is_live(turn, tag, topic)
        if found:
            sessions.setdefault(part, {})[tag] = _presented(tag, outcome)
    return sessions


def is_live(turn: Turn, tag: bytes, pattern: str) -> bool:
    """E-6: False when the tag counts as settled: nobody will send a subscription to `pattern` its SYNC.

    That is so when its session is not in view, or is one of a publisher of another topic. Tags of another cluster
    nonce are not ours to settle: they are kept until the application decides.
    """
    session = session_of(tag, turn.nonce)
    if session == 0:
        return True
    publisher = turn.view.publisher_of(session)
    if publisher is None:
        return False
    if is_letter_tag(tag):
        return gets_letters(turn.policy_of(publisher.topic), publisher.topic, pattern)  # I-3e
    return matches(pattern, publisher.topic)
