"""The faults that may strike a simulated world, by name."""

from __future__ import annotations

FAULTS = (
    "crash",
    "leave",
    "blackout",
    "stall",
    "freeze",
    "isolate",
    "outage",
    "restore",
    "compact",
    "relist",
    "reset",
    "clog",
    "cut",
    "shed",
    "twist",
    "double",
    "drop-p",
    "drop-s",
    "trim-p",
    "trim-s",
    "half-p",
    "half-s",
    "away-p",
    "away-s",
    "thief-p",
    "thief-s",
    "expire-s",
    "expire-p",
    "crash-p",
    "crash-s",
    "torn-p",
    "torn-s",
    "early-p",
    "close-p",
    "close-s",
)
"""Verbs of `chaos.simulator.actions` without their `!`."""
DRAIN = "drain"
"""A fault drawn apart from the others, so that a world without a drain goes the same way with it or without."""
ORDER = "end-s"
"""Drawn apart, too."""
RENEWAL = "renew-s"
"""Drawn apart, too."""
PAUSE = "pause-p"
"""Drawn apart, too."""
NEW_TOPIC = "retopic-s"
"""Drawn apart, too, together with the topics."""
NEW_FILTER = "refilter-s"
"""Drawn apart, too, together with the filters."""
DETACHES = ("detach-p", "detach-s")
"""Drawn apart, too."""
QUIT = "quit-p"
"""Drawn apart, too: the stock publisher ends its link right behind what it sends (A-9a)."""
RELOAD = "reload"
"""Drawn apart, too, together with the dead letters: operators take their topic away."""
ROLLBACK = "rollback"
"""Drawn apart, too."""
DEATH = "die-p"
"""Drawn apart, too, together with the publishers it strikes."""
ALL_FAULTS = (*FAULTS, DRAIN, ORDER, RENEWAL, PAUSE, NEW_TOPIC, NEW_FILTER, RELOAD, ROLLBACK, QUIT, DEATH, *DETACHES)
