"""What a client process of an experiment is to do: passed to it as one JSON argument, read by chaos/clients/load.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

from chaos.clients.flights import rows_of, share

STOP_COMMAND = b"stop\n"
"""On a client's standard input: end in good order. End of input: the experiment is gone, end at once."""


@dataclass(frozen=True, slots=True)
class Share:
    """One publisher's part of the source: rows `index`, `index + of`, ... of the first `limit` rows."""

    limit: int
    index: int = 0
    of: int = 1
    file: str | None = None
    """A text file, one message a line; None: the flights."""

    def rows(self) -> Iterator[bytes]:
        """Iterate over the rows. Raises DataSetError when the source cannot be read."""
        return share(rows_of(None if self.file is None else Path(self.file), self.limit), self.index, self.of)


@dataclass(frozen=True, slots=True)
class PublisherPlan:
    """A publisher that sends its share at a steady rate, and ends when each message has an outcome."""

    name: str
    topic: str
    urls: tuple[str, ...]
    """Routers in the order in which they are tried."""
    events: str
    """File of its journal of events."""
    share: Share
    rate: float
    """Messages per second; 0 = as fast as its window allows."""
    window: int
    """Messages it has unsettled at most."""
    journal: str | None = None
    """File of the client library's durable journal; None: memory."""
    gate: str | None = None
    """File with the number of messages it may have sent by now; None: all."""
    idle_timeout_s: float = 2.0
    """A router that is silent for this long is given up."""
    groups: int = 0
    """Every second message belongs to one of so many groups; 0: none does."""


@dataclass(frozen=True, slots=True)
class SubscriberPlan:
    """A subscriber that processes in batches, as with a data base; it runs until it is stopped."""

    name: str
    address: str
    """A topic or a pattern."""
    urls: tuple[str, ...]
    events: str
    batch: int
    """Messages processed together. They are accepted then, not one by one."""
    batch_s: float
    """A smaller batch is processed after this time."""
    timeout_s: float = 60.0
    """How long the subscription outlives its link (T_sub)."""
    journal: str | None = None
    keeps_payloads: bool = False
    """Whether the journal, which there must be, keeps the messages themselves, too."""
    hold: str | None = None
    """While there is a file of this name nothing is processed: what has come stays unsettled. None: never."""
    idle_timeout_s: float = 2.0
    share: str | None = None
    """The shared subscription that it is a member of; None: it has a subscription of its own."""
    by_group: bool = False
    """Whether messages of one group are to come in order (SH-6)."""


ClientPlan: TypeAlias = PublisherPlan | SubscriberPlan


def open_gate(gate: Path, messages: int) -> None:
    """Let publishers with this gate go on until each has sent so many; they find the old number or the new one."""
    new = gate.with_suffix(".new")
    new.write_text(str(messages))
    new.replace(gate)


def encode_plan(plan: ClientPlan) -> str:
    """Encode for the command line of chaos/clients/load.py."""
    return json.dumps({"role": type(plan).__name__, **asdict(plan)})


def decode_plan(text: str) -> ClientPlan:
    """Decode what `encode_plan` made."""
    fields = json.loads(text)
    role = fields.pop("role")
    fields["urls"] = tuple(fields["urls"])
    if role == SubscriberPlan.__name__:
        return SubscriberPlan(**fields)
    assert role == PublisherPlan.__name__, role
    return PublisherPlan(**{**fields, "share": Share(**fields["share"])})
