"""Two live clients with one identity would steal each other's link for ever: the third steal is refused (A-8a)."""

from __future__ import annotations

from collections import deque

from delivery_records.model.limits import STEAL_REFUSAL_S, STEAL_WINDOW_S, STEALS

_REMEMBERED = 10_000
"""Identities whose steals, and whose refusals, are remembered; the oldest is forgotten first."""


class StealGuard:
    """Counts steals of links that were alive at this router."""

    __slots__ = ("_refused_until", "_steals")

    def __init__(self) -> None:
        """No steal was seen."""
        self._steals: dict[str, deque[tuple[float, str, str]]] = {}
        self._refused_until: dict[str, tuple[float, str, str]] = {}

    def on_stolen(self, path: str, now: float, holder: str, thief: str) -> None:
        """A live link of `holder` was taken over by `thief` (addresses of the clients)."""
        steals = self._steals.setdefault(path, deque(maxlen=STEALS + 1))
        steals.append((now, holder, thief))
        if len(self._steals) > _REMEMBERED:
            self._steals.pop(next(iter(self._steals)))

    def refusal(self, path: str, now: float, peer: str) -> str | None:
        """Why this attach is refused now, or None. The text names both clients."""
        refused = self._refused_until.get(path)
        if refused is not None:
            until, holder, thief = refused
            if now < until and peer != thief:
                return _text(holder, thief, until - now)
            if now >= until:
                del self._refused_until[path]
        steals = self._steals.get(path, ())
        recent = [steal for steal in steals if now - steal[0] <= STEAL_WINDOW_S]
        if len(recent) < STEALS:
            return None
        _, holder, thief = recent[-1]
        self._refused_until[path] = (now + STEAL_REFUSAL_S, holder, thief)
        if len(self._refused_until) > _REMEMBERED:
            self._refused_until.pop(next(iter(self._refused_until)))
        self._steals.pop(path, None)
        return _text(holder, thief, STEAL_REFUSAL_S)

    @property
    def remembered(self) -> int:
        """Identities that are remembered."""
        return len(self._steals) + len(self._refused_until)


def _text(holder: str, thief: str, seconds: float) -> str:
    return (
        f"two live clients use this container-id and link name: {holder or 'unknown'} and {thief or 'unknown'}; "
        f"refused for {seconds:.0f} s, give each its own container-id or link name"
    )
