"""The configurations in which the reference model of the protocol was explored, as settings of the simulated world.

The rules were explored as a model before the code was written (docs/counterexamples.md, "What was run"). Each row
here is one of its configurations: the same number of routers, clients and messages, the same links attached before
the exploration starts, the same budget of faults. `chaos.simulator.model_runs` explores it with the real cores;
docs/model-and-code.md says how the two correspond.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from typing import TypeAlias

from chaos.simulator.swarm import Setting
from chaos.simulator.traits import Traits

FAULTS = (
    "crash", "drop-p", "drop-s", "isolate", "reset", "expire-s", "expire-p", "crash-p", "crash-s", "close-s",
)  # fmt: skip
"""The model's ten, by the verbs of the world without their `!`; the world has more."""

Budget: TypeAlias = tuple[tuple[str, int], ...]
"""(fault, how often)."""

NO_LIMIT = 50
"""Deliveries a subscriber allows where the model does not count: more than any configuration sends."""
PLAIN = Traits(timeout_s=45)
"""45 s: one put for each attach, as in the model, which knows no provisional subscriptions (A-10)."""


@dataclass(frozen=True, slots=True)
class Link:
    """A link that is attached and idle before the exploration starts: client "p" or "s", its index, its router."""

    kind: str
    index: int
    router: int


@dataclass(frozen=True, slots=True)
class Configuration:
    """One configuration of the model."""

    name: str
    routers: int
    publishers: int
    subscribers: int
    messages: int
    """Of each publisher."""
    window: int
    attached: tuple[Link, ...]
    """Every other client joins in the course of the exploration."""
    budget: Budget = ()
    restarts: bool = False
    """A dead router starts again although another one lives; otherwise only when none does."""
    prefetch: int = NO_LIMIT
    traits: Traits = PLAIN

    @property
    def setting(self) -> Setting:
        """The world of this size."""
        return Setting(
            self.routers,
            self.publishers,
            self.subscribers,
            self.messages,
            self.window,
            self.prefetch,
            self.traits,
        )

    @property
    def latecomers(self) -> tuple[tuple[str, int], ...]:
        """Clients that join in the course of the exploration."""
        everybody = [("p", index) for index in range(self.publishers)]
        everybody += [("s", index) for index in range(self.subscribers)]
        early = {(link.kind, link.index) for link in self.attached}
        return tuple(client for client in everybody if client not in early)

    def with_shipped_clients(self) -> Configuration:
        """The same with the client cores of `oncewire.client` in place of the reference clients."""
        return replace(self, name=f"{self.name}, shipped clients", traits=replace(self.traits, shipped=True))


_S0_AT_1 = (Link("s", 0, 1), Link("p", 0, 0))
"""Publisher and subscriber at different routers."""
_S0_AT_0 = (Link("s", 0, 0), Link("p", 0, 0))
_ONLY_P = (Link("p", 0, 0),)

_THREE = Configuration("3R 1P 1S 2m", 3, 1, 1, 2, 2, _S0_AT_1)
_TWO = Configuration("2R 1P 1S 2m", 2, 1, 1, 2, 2, _S0_AT_1)
_TWO_1M = Configuration("2R 1P 1S 1m", 2, 1, 1, 1, 1, _S0_AT_1)
_JOINS = Configuration("2R 1P 2S (1 joins) 2m", 2, 1, 2, 2, 2, _S0_AT_1)
_JOINS_AT_ONE = Configuration("1R 1P 2S (1 joins) 2m", 1, 1, 2, 2, 2, _S0_AT_0)
_TWO_P = Configuration("2R 2P 1S 1m each", 2, 2, 1, 1, 1, (*_S0_AT_1, Link("p", 1, 1)))
_SQUARE = Configuration(
    "2R 2P 2S 1m each credit 1", 2, 2, 2, 1, 1,
    (Link("s", 0, 0), Link("s", 1, 1), Link("p", 0, 0), Link("p", 1, 1)), prefetch=1,
)  # fmt: skip
_LATE = Configuration("2R 1P 1S (joins) 2m", 2, 1, 1, 2, 2, _ONLY_P)
_LATE_1M = Configuration("2R 1P 1S (joins) 1m", 2, 1, 1, 1, 1, _ONLY_P)
_ONE = Configuration("1R 1P 1S 2m", 1, 1, 1, 2, 2, _S0_AT_0)


def _with(base: Configuration, *budgets: dict[str, int]) -> tuple[Configuration, ...]:
    """The configuration once for each budget."""
    return tuple(replace(base, budget=tuple(budget.items())) for budget in budgets)


EXHAUSTIVE: tuple[Configuration, ...] = (
    *_with(_THREE, {}, {"crash": 1}),
    *_with(replace(_THREE, name="3R 1P 1S 2m restart", restarts=True), {"crash": 1}),
    *_with(_THREE, {"isolate": 1}, {"reset": 1, "drop-s": 1}, {"reset": 1, "drop-p": 1}),
    *_with(
        _TWO, {"drop-p": 1, "drop-s": 1}, {"drop-p": 2}, {"drop-s": 2}, {"crash": 1, "drop-s": 1},
        {"crash": 1, "drop-p": 1}, {"crash": 2}, {"expire-p": 1, "drop-p": 1}, {"expire-s": 1, "drop-s": 1},
        {"crash-p": 1, "drop-s": 1}, {"crash-s": 1, "crash": 1},
    ),
    *_with(_JOINS, {}, {"drop-p": 1}, {"crash": 1}, {"drop-s": 1}),
    *_with(_TWO_P, {"crash": 1}, {"drop-p": 1}),
    *_with(_SQUARE, {}),
    *_with(_TWO_1M, {"expire-p": 2, "drop-p": 1}),
    *_with(
        Configuration("1R 1P 1S 1m total outage", 1, 1, 1, 1, 1, _S0_AT_0, restarts=True), {"crash": 2},
    ),
    *_with(_THREE, {"drop-p": 1, "drop-s": 1}),
    *_with(replace(_THREE, name="3R 1P 1S 3m w3", messages=3, window=3), {"crash": 1}),
    *_with(_THREE, {"crash": 1, "drop-p": 1}, {"crash": 1, "drop-s": 1}, {"isolate": 1, "drop-s": 1}),
)  # fmt: skip
"""Explored depth first with the corrected rules, until every state was visited or the time was over."""

AMENDED: tuple[Configuration, ...] = (
    *_with(_JOINS_AT_ONE, {"drop-p": 1}),
    *_with(replace(_JOINS_AT_ONE, name="1R 1P 2S (1 joins) 3m w3", messages=3, window=3), {"drop-p": 1}),
    *_with(
        _LATE, {"expire-s": 1, "drop-p": 1}, {"expire-p": 1, "drop-s": 1}, {"crash-p": 1, "drop-s": 1},
        {"isolate": 1}, {"isolate": 1, "drop-p": 1}, {"isolate": 1, "drop-s": 1}, {"crash": 1, "drop-s": 1},
        {"expire-s": 1, "drop-s": 1},
    ),
    *_with(_JOINS, {"isolate": 1}),
    *_with(replace(_TWO, name="2R 1P 1S 2m pipelines", traits=Traits(True, timeout_s=45)), {"drop-p": 2}),
    *_with(
        replace(_TWO_1M, name="2R 1P 1S 1m never", traits=Traits(never=True)),
        {"drop-s": 2, "close-s": 1}, {"drop-s": 1, "close-s": 1},
    ),
    *_with(replace(_ONE, name="1R 1P 1S 2m abandons", traits=Traits(abandons=True, timeout_s=45)), {"drop-p": 1}),
)  # fmt: skip
"""Added for the amendments (I-6 with E-2, K-3a, T-3, A-6b; A-4, A-10, I-9). Ten more were rows of `EXHAUSTIVE`."""

DIRECTED: tuple[Configuration, ...] = (
    *_with(replace(_TWO, name="2R 1P 1S 2m at one router", attached=_S0_AT_0), {"drop-p": 2}),
    *_with(_JOINS_AT_ONE, {"drop-p": 1, "crash-s": 1}),
    *_with(replace(_THREE, name="3R 1P 1S 1m", messages=1, window=1), {"drop-p": 1, "drop-s": 1}),
    *_with(replace(_TWO_1M, name="2R 1P 1S 1m at one router", attached=_S0_AT_0), {"drop-p": 2, "expire-p": 2}),
)  # fmt: skip
"""Made for mutants of the model that random walks rarely killed; the others of them are rows above."""


def _pairs(base: Configuration) -> Iterator[Configuration]:
    """No fault, every single fault, and every pair of faults, with repetition."""
    yield replace(base, budget=())
    for fault in FAULTS:
        yield replace(base, budget=((fault, 1),))
    for one, other in combinations_with_replacement(FAULTS, 2):
        yield replace(base, budget=((one, 2),) if one == other else ((one, 1), (other, 1)))


PAIRS_ATTACHED: tuple[Configuration, ...] = tuple(_pairs(replace(_TWO_1M, name="pairs, 2R 1P 1S 1m")))
PAIRS_LATE_JOIN: tuple[Configuration, ...] = tuple(
    _pairs(replace(_LATE_1M, name="pairs, 2R 1P 1S (joins) 1m"))
)

CONFIGURATIONS: tuple[Configuration, ...] = (
    *EXHAUSTIVE, *AMENDED, *DIRECTED, *PAIRS_ATTACHED, *PAIRS_LATE_JOIN,
)  # fmt: skip

WITHOUT_A_ROW: dict[str, str] = {
    "split (3R 1P 1S 2m, crash 1; 1R 1P 2S 3m w3, drop-p 1)": (
        "the simulated subscriber always processes in a step of its own, so every row is split on that side; the "
        "simulated publisher settles in the step in which it is told, as the client library does"
    ),
    "zombies=0 (2R 1P 1S joins 1m, isolate 1)": (
        "in the world the bytes of a dead connection may always be read late; the row with them contains it"
    ),
    "recycle (2 or 3 routers, drop-s and crash)": (
        "breaks assumption P-2 on purpose; simulated publishers keep to it, and nothing is promised to those who do not"
    ),
    "mutants of the model": (
        "an edit of the code takes their place (chaos/mutants); their traces are in tests/chaos/model_schedules"
    ),
    "models of the design notes (C1 to C14)": (
        "another protocol; their traces are put into the words of this one in tests/chaos/model_schedules"
    ),
    "random walks (1 to 4 routers, up to 4 messages, up to 3 of each fault)": (
        "drawn anew for each walk, so not rows: `schedule.run_seed` draws such worlds"
    ),
    "rows that differ only in the model's switches (rev, start, vet, early)": (
        "the code has the amended rules always, so they are one row"
    ),
}
"""What the model ran and no row stands for, with the reason."""
