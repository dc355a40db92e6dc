"""How many deliveries wait for long, and for whom: found from the heads of the windows when somebody asks.

No delivery has a timer. Arrivals are in the order of the window, so what has waited too long is its beginning.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from delivery_records.diagnostics.waits import Reason, waiting
from delivery_records.publisher.ingress import Ingress

DELAYED_S = 1.0
"""Unsettled for longer than this is *delayed*: a hundred times what a delivery takes that nobody holds up."""
STUCK_S = 10.0
"""Unsettled for longer than this is *stuck*: longer than a failover, or a client that starts again."""


def _nobody() -> dict[Reason, int]:
    return dict.fromkeys(Reason, 0)


@dataclass(slots=True)
class Late:
    """Unsettled deliveries in the windows of one router, by what they wait for."""

    delayed: dict[Reason, int] = field(default_factory=_nobody)
    """Longer than DELAYED_S; the stuck ones are among them."""
    stuck: dict[Reason, int] = field(default_factory=_nobody)
    """Longer than STUCK_S."""
    oldest_s: float = 0.0
    """Age of the oldest; 0 when nothing is unsettled."""
    publishers: int = 0
    """Publishers with unsettled deliveries."""


def late(ingresses: Iterable[Ingress], now: float) -> Late:
    """What is late at this router, `now` on the core's clock."""
    found = Late()
    for ingress in ingresses:
        if not len(ingress.window):
            continue
        found.publishers += 1
        found.oldest_s = max(found.oldest_s, now - ingress.arrivals.at(ingress.window.base))
        _add(found.delayed, ingress, now - DELAYED_S)
        _add(found.stuck, ingress, now - STUCK_S)
    return found


def _add(counts: dict[Reason, int], ingress: Ingress, at: float) -> None:
    """Count the deliveries of one publisher that arrived before `at`."""
    window = ingress.window
    stop = ingress.arrivals.before(at, window.end)
    if stop <= window.base:
        return
    reported = window.count(window.base, min(stop, window.next_accept))
    counts[Reason.PUBLISHER_SETTLES] += reported
    found = waiting(ingress)
    if stop > window.next_accept and found is not None:
        counts[found.reason] += window.count(window.next_accept, stop)
