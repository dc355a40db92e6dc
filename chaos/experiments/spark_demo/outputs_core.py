"""What one run of the job gives for each row, worked out without Spark, and what is wrong with what was received.

The job puts the number of its present life into each row, as if it computed at random: a batch that is computed twice
has two contents. So it shows where what was published is not what one run of a batch gave.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from oncewire.client.transactions.sequence_header import HeaderError, SequenceHeader, read_header
from oncewire.client.transactions.sequencer import Batch, Sequencer
from oncewire.wire import DecodeError, decode_message

ARRIVAL_DELAY = 8
CARRIER = 9
ORIGIN = 12
DESTINATION = 13
"""Columns of a flight."""
UNKNOWN = "NA"
"""In place of the delay of a flight that never arrived."""
FINDINGS_SHOWN = 5
"""Of each kind: where one thing is wrong, thousands may be."""


@dataclass(slots=True)
class OutputVerdict:
    """What the checker found. Every number but the first four is 0 in a run that is exact.

    Attributes:
        received: messages that the subscriber was given.
        batches: transactions among them that are complete.
        runs: lives of the job whose rows were received.
        late_flights, late_minutes: by carrier, of the flights with a delay: the outcome that a user would look at.
        lost: rows without an output in a complete batch.
        duplicated: messages with the identity of an earlier one, and further outputs of one row.
        torn: messages with the identity of another content, of a batch of which only a part came or that more than
            one run computed, or with another content than the row gives.
        findings: what is wrong, for people; some of each kind.
    """

    received: int = 0
    batches: int = 0
    runs: set[int] = field(default_factory=set)
    late_flights: Counter[str] = field(default_factory=Counter)
    late_minutes: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    duplicated: int = 0
    torn: int = 0
    findings: list[str] = field(default_factory=list)

    @property
    def is_exact(self) -> bool:
        """True when every row has had its output exactly once."""
        return not (self.lost or self.duplicated or self.torn)


def expected_output(number: int, row: bytes) -> dict[str, object]:
    """What the job publishes for a row, without the number of the job's life.

    Args:
        number: of the row, from 1.
        row: a flight as CSV.
    """
    cells = row.decode().split(",")
    found: dict[str, object] = {
        "row": number,
        "carrier": cells[CARRIER],
        "route": f"{cells[ORIGIN]}-{cells[DESTINATION]}",
    }
    if cells[ARRIVAL_DELAY] != UNKNOWN:
        found["minutes_late"] = int(cells[ARRIVAL_DELAY])
    return found


def judge_outputs(rows: Sequence[bytes], payloads: Iterable[bytes]) -> OutputVerdict:
    """Judge what a subscriber received.

    Args:
        rows: what was published, in order.
        payloads: the encoded messages that the subscriber accepted, in the order in which it did.
    """
    return _Judge(rows).judge(payloads)


class _Judge:
    """One judgement."""

    def __init__(self, rows: Sequence[bytes]) -> None:
        self._rows = rows
        self._verdict = OutputVerdict()
        self._contents: dict[tuple[object, int], bytes] = {}
        self._outputs: Counter[int] = Counter()
        self._shown: Counter[str] = Counter()

    def judge(self, payloads: Iterable[bytes]) -> OutputVerdict:
        """Judge all; once."""
        kept = list(payloads)
        # Larger than all there is: the sequencer never asks for a message to be read again.
        sequencer: Sequencer[bytes] = Sequencer(ring_messages=len(kept) + 1)
        released = 0
        for position, payload in enumerate(kept, 1):
            self._verdict.received += 1
            body, header = self._opened(position, payload)
            if header is None:
                continue
            self._compare_identity(header, body)
            for effect in sequencer.feed(position, header, body, 0.0).effects:
                assert isinstance(effect, Batch), "the ring holds everything"
                bodies = [placed.message for placed in effect.messages]
                released += len(bodies)
                self._take_batch(bodies)
        self._find_partial(len(self._contents) - released)
        self._find_lost()
        return self._verdict

    def _opened(self, position: int, payload: bytes) -> tuple[bytes, SequenceHeader | None]:
        try:
            message = decode_message(payload)
            header = read_header(message.annotations)
        except (DecodeError, HeaderError) as error:
            return self._unusable(position, str(error))
        if header is None or not isinstance(message.body, bytes):
            return self._unusable(position, "it has no identity, or no data")
        return message.body, header

    def _unusable(self, position: int, why: str) -> tuple[bytes, None]:
        self._tear(1, "unusable", f"message {position} is none of the job's: {why}")
        return b"", None

    def _compare_identity(self, header: SequenceHeader, body: bytes) -> None:
        identity = (header.producer, header.sequence)
        known = self._contents.get(identity)
        if known is None:
            self._contents[identity] = body
            return
        self._verdict.duplicated += 1
        self._say("identity", f"message {header.sequence} of {header.producer} came again")
        if known != body:
            self._tear(1, "contents", f"message {header.sequence} of {header.producer} has two contents")

    def _take_batch(self, bodies: Sequence[bytes]) -> None:
        self._verdict.batches += 1
        runs: Counter[object] = Counter()
        for body in bodies:
            runs[self._take(body)] += 1
        if len(runs) > 1:
            parts = ", ".join(f"{count} of run {run}" for run, count in runs.most_common())
            self._tear(len(bodies), "mixed", f"batch {self._verdict.batches} is of several runs: {parts}")

    def _take(self, body: bytes) -> object:
        """Compare one output with its row; returns the life of the job that computed it."""
        try:
            output = json.loads(body)
            number, run = output["row"], output.pop("run")
            row = self._rows[number - 1] if number >= 1 else b""
        except (ValueError, TypeError, KeyError, IndexError, AttributeError):
            self._tear(1, "content", f"no row gives {body[:120]!r}")
            return None
        if not row or output != expected_output(number, row):
            self._tear(1, "content", f"row {number} gives {expected_output(number, row)}, not {output}")
            return run
        self._outputs[number] += 1
        if self._outputs[number] > 1:
            self._verdict.duplicated += 1
            self._say("duplicated", f"row {number} has {self._outputs[number]} outputs")
        self._verdict.runs.add(run)
        if "minutes_late" in output:
            self._verdict.late_flights[output["carrier"]] += 1
            self._verdict.late_minutes[output["carrier"]] += output["minutes_late"]
        return run

    def _find_partial(self, count: int) -> None:
        if count:
            self._tear(count, "partial", f"{count} messages are of batches of which only a part came")

    def _find_lost(self) -> None:
        for number in self._missing():
            self._verdict.lost += 1
            self._say("lost", f"row {number} has no output")

    def _missing(self) -> Iterator[int]:
        return (number for number in range(1, len(self._rows) + 1) if not self._outputs[number])

    def _tear(self, count: int, kind: str, text: str) -> None:
        self._verdict.torn += count
        self._say(kind, text)

    def _say(self, kind: str, text: str) -> None:
        self._shown[kind] += 1
        if self._shown[kind] <= FINDINGS_SHOWN:
            self._verdict.findings.append(text)
