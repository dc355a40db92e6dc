"""One word for one state: what the page and the command line show for the values of the API, and what each means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

GOOD, WARN, BAD, PLAIN = "good", "warn", "bad", "plain"


class Word(NamedTuple):
    """How a state is shown."""

    kind: str
    """good, warn, bad or plain: colour and mark on the page."""
    word: str
    meaning: str = ""
    """Empty where the word says it all."""


_ATTACHED = Word(GOOD, "attached")
_DETACHED = Word(WARN, "detached", "its link has ended; it is kept until it expires")
_PROVING = Word(WARN, "proving", "its link is up; its client has not proved yet that it is alive")

WORDS: Mapping[str, Word] = {
    # a router: whether it accepts clients, and as the others see it
    "ready": Word(GOOD, "ready"),
    "not-ready": Word(BAD, "not ready"),
    "serving": Word(GOOD, "serving"),
    "draining": Word(WARN, "draining", "its clients move to other routers"),
    "leaving": Word(WARN, "leaving", "it is about to stop"),
    "unreachable": Word(BAD, "unreachable", "no path leads to its router"),
    "stopped": Word(BAD, "stopped", "it stopped, or lost its lease, while this page was open"),
    # links between routers
    "up": Word(GOOD, "up"),
    "one-way": Word(WARN, "one-way", "only one end announces it, so it is not used"),
    "down": Word(BAD, "down", "it went down while this page was open"),
    # subscriptions and publishers
    "attached": _ATTACHED,
    "active": _ATTACHED,
    "provisional": _PROVING,
    "proving": _PROVING,
    "waiting": Word(WARN, "resuming", "its link is up; it has not sent its unsettled deliveries again yet"),
    "starting": Word(WARN, "starting", "its session begins"),
    "ending": Word(WARN, "ending", "its client has ended it and waits for outcomes"),
    "closing": Word(WARN, "closing", "it ends once everything is settled"),
    "detached": _DETACHED,
    "suspended": _DETACHED,
    "orphaned": Word(BAD, "orphaned", "its router has stopped; it is kept until it expires"),
    "elsewhere": Word(PLAIN, "elsewhere", "attached at the named router, which alone knows whether its link is up"),
    # deliveries
    "in-doubt": Word(WARN, "in doubt", "its client has it and has not answered"),
    "held": Word(WARN, "held", "its client gives no credit, or has no room for it"),
    "again": Word(WARN, "to be retried", "its client wants it again, after a pause"),
    "underway": Word(WARN, "underway", "it has not arrived at its router yet"),
    "accepted": Word(GOOD, "accepted"),
    "rejected": Word(BAD, "rejected"),
    "expired": Word(WARN, "expired", "its time was over before it was sent there"),
    "released": Word(WARN, "released", "no subscription was there for it"),
    "settled": Word(GOOD, "settled"),
}
"""By the value that the API has."""

REASONS: Mapping[str, str] = {
    "subscriptions": "It waits for these subscriptions:",
    "dead-letter": "A subscription failed it, and nobody subscribes to the topic for dead letters.",
    "publisher-repeats": "Its publisher attached again and announced it, and has not sent it again yet.",
    "publisher-settles": "Its publisher has the outcome, and has not settled it yet.",
    "publisher-proves": "Its publisher's link is up again; the client has not proved yet that it is alive.",
    "publisher-away": "The outcome is known; its publisher is disconnected and cannot get it.",
}
"""Why the oldest delivery of a publisher waits."""


def word_of(state: object) -> str:
    """The word for a state; the value itself where there is none."""
    found = WORDS.get(str(state))
    return str(state) if found is None else found.word


def at_subscription(state: str, detail: str | None) -> str:
    """Where a delivery is at one subscription: what is held or retried is not in doubt."""
    return detail if state == "in-doubt" and detail in ("held", "again") else state
