"""Spark's progress and the node's state combined: how far a query is behind, and what it waits for.

Spark cannot be given numbers by a source or sink in Python; it knows positions and rates. The node knows what has
arrived, what was a repeat, what waits to be published, and why. Spark is not needed here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class InputReport:
    """One subscription of a query, or a journal. Of a journal, or without the node, Spark's own numbers alone.

    Attributes:
        subscription: its name, or the journal's.
        position: where the newest batch ended.
        newest: the newest position in the journal.
        behind: messages that are there and not in a batch yet.
        kept_bytes: size of the journal; None = not reported by the node.
        is_full: the journal takes no messages: publishers wait for this query.
        repeats: messages that came again and were dropped, since the node was started.
        losses: how often the network had deleted the subscription, since the node was started: messages are missing.
        trouble: why nothing can be received just now; empty = nothing is wrong.
    """

    subscription: str
    position: int
    newest: int
    behind: int
    kept_bytes: int | None
    is_full: bool
    repeats: int
    losses: int
    trouble: str


@dataclass(frozen=True, slots=True)
class OutputReport:
    """One sink of a query.

    Attributes:
        sink: its id.
        waiting_batches, waiting_bytes: decided, and not accepted by every subscription.
        outcomes: rows by what became of them, since the node was started.
        trouble: what keeps it from publishing just now; empty = nothing.
    """

    sink: str
    waiting_batches: int
    waiting_bytes: int
    outcomes: Mapping[str, int]
    trouble: str


@dataclass(frozen=True, slots=True)
class QueryReport:
    """One query at the end of a batch.

    Attributes:
        query: its id, the same for a checkpoint.
        name: what its user called it; empty = nothing.
        batch: the newest one.
        rows: in it.
        rows_per_s: of it.
        seconds: it took, from trigger to commit.
        inputs, outputs: what the node has of the query.
        node_trouble: why the node could not be asked; empty = it was.
    """

    query: str
    name: str
    batch: int
    rows: int
    rows_per_s: float
    seconds: float
    inputs: tuple[InputReport, ...]
    outputs: tuple[OutputReport, ...]
    node_trouble: str

    def line(self) -> str:
        """One line for a log."""
        parts = [f"query {self.name or self.query} batch {self.batch}: {self.rows} rows in {self.seconds:.2f} s"]
        if self.rows:
            parts[0] += f", {self.rows_per_s:.0f} rows/s"
        for source in self.inputs:
            full = ", journal full" if source.is_full else ""
            lost = f", deleted by the network {source.losses} times" if source.losses else ""
            trouble = f", {source.trouble}" if source.trouble else ""
            parts.append(f"{source.subscription} {source.behind} behind{full}{lost}{trouble}")
        for sink in self.outputs:
            trouble = f", {sink.trouble}" if sink.trouble else ""
            parts.append(f"sink {sink.sink} {sink.waiting_batches} batches unpublished{trouble}")
        if self.node_trouble:
            parts.append(f"the node cannot be asked: {self.node_trouble}")
        return "; ".join(parts)


def join_progress(progress: Mapping[str, Any], state: Mapping[str, Any], node_trouble: str = "") -> QueryReport:
    """Put together what both know.

    Args:
        progress: Spark's, as its JSON.
        state: the node's `status()`; empty = it could not be asked.
        node_trouble: why.
    """
    query = str(progress["id"])
    subscriptions = state.get("subscriptions", {})
    return QueryReport(
        query=query,
        name=str(progress.get("name") or ""),
        batch=int(progress["batchId"]),
        rows=int(progress.get("numInputRows") or 0),
        rows_per_s=_number(progress.get("processedRowsPerSecond")),
        seconds=_number(progress.get("durationMs", {}).get("triggerExecution")) / 1000,
        inputs=tuple(each for source in progress.get("sources", []) for each in _inputs(source, subscriptions)),
        outputs=tuple(
            _output(name, sink) for name, sink in state.get("sinks", {}).items() if sink.get("query") == query
        ),
        node_trouble=node_trouble,
    )


def join_states(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The states of several nodes as one; a shard of a subscription is called as in offsets, SUBSCRIPTION#NUMBER."""
    found: dict[str, Any] = {"subscriptions": {}, "sinks": {}}
    for state in states:
        for name, inner in state["subscriptions"].items():
            number, is_shard, _ = inner["shard"].partition("/")
            found["subscriptions"][f"{name}#{number}" if is_shard else name] = inner
        found["sinks"].update(state["sinks"])
    return found


def positions(offset: object) -> dict[str, int]:
    """Subscriptions and positions of an offset; empty for other sources' offsets."""
    if not isinstance(offset, Mapping):
        return {}
    return {
        str(name): inner["seq"]
        for name, inner in offset.items()
        if isinstance(inner, Mapping) and isinstance(inner.get("seq"), int) and "journal" in inner
    }


def _number(value: object) -> float:
    """Spark writes NaN and infinity as texts where nothing was measured."""
    return float(value) if isinstance(value, int | float) else 0.0


def _inputs(source: Mapping[str, Any], subscriptions: Mapping[str, Any]) -> Iterator[InputReport]:
    """What a source reads: the node knows more of a subscription, and nothing of a journal (its offset has `begun`)."""
    ends, newest = source.get("endOffset"), positions(source.get("latestOffset"))
    for name, position in positions(ends).items():
        assert isinstance(ends, Mapping)
        if name in subscriptions and "begun" not in ends[name]:
            yield _input(name, position, subscriptions[name])
        elif name in newest:
            yield _input(name, position, {"last": newest[name]})


def _input(name: str, position: int, state: Mapping[str, Any]) -> InputReport:
    newest = int(state["last"])
    return InputReport(
        subscription=name,
        position=position,
        newest=newest,
        behind=max(0, newest - position),
        kept_bytes=state.get("live_bytes"),
        is_full=bool(state.get("is_full", False)),
        repeats=int(state.get("messages", {}).get("duplicate", 0)),
        losses=int(state.get("new_incarnations", 0)),
        trouble=str(state.get("trouble", "")),
    )


def _output(name: str, state: Mapping[str, Any]) -> OutputReport:
    return OutputReport(
        sink=name,
        waiting_batches=int(state["waiting_manifests"]),
        waiting_bytes=int(state["waiting_bytes"]),
        outcomes=dict(state.get("outcomes", {})),
        trouble=str(state.get("trouble", "")),
    )
