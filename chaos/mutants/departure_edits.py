"""Edits of how publishers without a map end (A-9a)."""

from __future__ import annotations

from chaos.mutants.edits import Edit

_STOCK = ("stock_publisher=1", "publishers=1", "messages=8", "window=8", "session_end=0")

DEPARTURE_EDITS: tuple[Edit, ...] = (
    Edit(
        "ends-at-once",
        "A-9a",
        "        if ingress.phase not in (Phase.ACTIVE, Phase.ENDING) or ingress.exactly_once or comes_back:\n",
        "        if ingress.phase:\n",
        "what a router has read is dropped without an outcome when a stock publisher ends its link",
        aim=("quit-p", *_STOCK),
    ),
    Edit(
        "gone-and-forgotten",
        "A-9a",
        "        departure.is_kept = owed > 0 and self._turn.now < until\n",
        "        departure.is_kept = False\n",
        "what a router has read is dropped when the connection of a stock publisher is lost",
        aim=("drop-p", *_STOCK),
    ),
    Edit(
        "a-new-session-at-once",
        "A-9a",
        "        return ingress.departure.is_awaited or ingress.phase is Phase.ENDING\n",
        "        return False\n",
        "a stock publisher that comes back ends what was read of it before, and does not send it again",
        aim=("drop-p", *_STOCK),
    ),
    Edit(
        "a-kept-session-ends-at-once",
        "A-9a",
        "        is_owed = self._goes_on(ingress) and ingress.departure.owed > 0\n",
        "        is_owed = self._turn.timers.is_set(Timer.EXPIRY, path) and ingress.departure.owed > 0\n",
        "a stock publisher that attaches again in its session ends what was read of it before",
        aim=("detach-p", *_STOCK[:-1], "session_end=1"),
    ),
)
