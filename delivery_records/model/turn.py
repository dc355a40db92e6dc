"""What every part of the record core shares in one call of `handle`: time, view, timers, and the effects so far.

It imports no part that decides anything, so each part can be read with it alone: what a part needs beside it comes at
construction, by name.
"""

from __future__ import annotations

from delivery_records.model import effects
from delivery_records.model.budget import Budget
from delivery_records.model.durations import Durations
from delivery_records.model.limits import Limits, PolicyOf
from delivery_records.model.outcomes import Decision
from delivery_records.model.tags import ERA_BITS, REVISION_BITS
from delivery_records.model.timers import Timers
from delivery_records.model.trace import Trace
from delivery_records.model.view import View


class Turn:
    """The facts of this turn, and what it has asked the shell for so far. One object for a whole incarnation."""

    __slots__ = (
        "_era",
        "activations",
        "budget",
        "counts",
        "delivered",
        "durations",
        "is_draining",
        "limits",
        "nonce",
        "now",
        "out",
        "plan_version",
        "policy_of",
        "rid",
        "settled",
        "settled_at_subscriber",
        "store_available",
        "stored",
        "timers",
        "trace",
        "tracing",
        "view",
    )

    def __init__(self, rid: int, nonce: bytes, limits: Limits, era: int = 0, policy_of: PolicyOf | None = None) -> None:
        """Start at time 0 with an empty view; the arguments are those of `Records`."""
        assert 0 <= era < 1 << ERA_BITS
        self.rid = rid
        self.nonce = nonce
        self.limits = limits
        self.policy_of: PolicyOf = policy_of or (lambda _topic: limits.policy)
        """Asked once for each publisher that attaches, and again when the operator's rules change."""
        self._era = era
        self.now = 0.0
        """Seconds on the caller's monotonic clock."""
        self.out: list[effects.Effect] = []
        self.counts: dict[Decision, int] = dict.fromkeys(Decision, 0)
        self.stored = self.delivered = self.settled = self.settled_at_subscriber = 0
        """What comes with every delivery, in this turn: `counts` has it when the turn ends."""
        self.durations = Durations()
        self.view = View()
        self.timers = Timers()
        self.budget = Budget(limits.router_bytes)
        self.trace = Trace(self.view, nonce)
        self.tracing: Trace | None = None
        """`trace` in a turn at whose beginning an operator wanted to see which rules deliveries meet."""
        self.store_available = False
        """The router has a valid lease and a working etcd session (A-1)."""
        self.is_draining = False
        """No credit, nothing new to subscribers, no attach (K-8a)."""
        self.plan_version = 0
        """Grows whenever a subscription or an egress changes."""
        self.activations = 0
        """Of publishers, so far."""

    def begin(self, now: float) -> None:
        """A call of the shell begins at `now`, which is never smaller than before."""
        assert now >= self.now, "time goes forward"
        self.now = now
        self.tracing = self.trace.at(now)

    def end(self) -> list[effects.Effect]:
        """Hand over what is to be carried out, in order."""
        counts = self.counts
        counts[Decision.TRANSFER_STORED] += self.stored
        counts[Decision.DELIVERED] += self.delivered
        counts[Decision.DELIVERY_SETTLED] += self.settled
        counts[Decision.SETTLED_AT_SUBSCRIBER] += self.settled_at_subscriber
        self.stored = self.delivered = self.settled = self.settled_at_subscriber = 0
        out, self.out = self.out, []
        return out

    def note(self, decision: Decision, **fields: object) -> None:
        """Count a decision and have it logged."""
        self.counts[decision] += 1
        self.out.append(effects.Note(decision, fields))

    def reported_incarnation(self, created: int) -> int:
        """K-9: the number that a subscriber gets; a create revision alone may come again when etcd's data went back."""
        return self._era << REVISION_BITS | created
