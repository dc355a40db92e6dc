"""Every (state, flag, clock relation) and what it leads to, kept as a readable table beside the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from oncewire.client.transactions.sequence_header import ENDS, Flag, ProducerId, SequenceHeader, final_rollback
from oncewire.client.transactions.sequencer import OUTCOMES, Batch, Outcome, Relation, Sequencer, Step
from tests.client.sequence_world import Journal, Reader
from tests.support.golden import assert_golden

TABLE = Path(__file__).parent / "sequencer_table.txt"
P = ProducerId("p", 1000)
OLD = ProducerId("old", 900)


def header(sequence: int, flag: Flag, begins: int = 0, floor: int = 0, producer: ProducerId = P) -> SequenceHeader:
    return SequenceHeader(producer, sequence, flag, begins, floor)


def alone(count: int) -> list[SequenceHeader]:
    return [header(number, Flag.ALONE) for number in range(1, count + 1)]


def pending(*numbers: int) -> list[SequenceHeader]:
    return [header(number, Flag.CONTINUE) for number in numbers]


# State -> (what came before, settings). In each, 1 to 9 came before where the producer is known; 10 comes next.
STATES: dict[str, tuple[list[SequenceHeader], dict[str, int]]] = {
    "unknown": ([], {}),
    "idle": (alone(9), {}),
    "open, in memory": (alone(6) + pending(7, 8, 9), {}),
    "open, in the journal": (alone(6) + pending(7, 8, 9), {"ring_messages": 2}),
    "ack waits": (alone(5) + pending(6, 8) + [header(9, Flag.ACK, 6)], {}),
    "ended for ever": ([*alone(9), final_rollback(P, 10)], {}),
    "pruned": ([], {"pruned": 1}),
    "no room for a producer": ([header(1, Flag.ALONE, producer=OLD)], {"max_producers": 1}),
    "no room for a hole": (alone(6) + pending(7, 8, 9), {"max_ranges": 2}),
}
# Clock relation -> number. An ack or rollback begins at 7.
CLOCKS = {
    "before all pending": 3,
    "of a pending one": 8,
    "next": 10,
    "behind a hole": 12,
    "behind a hole, floor stated": 12,
}


def reach(came: list[SequenceHeader], settings: dict[str, int]) -> Reader:
    """A reader in that state."""
    settings = dict(settings)
    pruned = settings.pop("pruned", 0)

    def make() -> Sequencer[str]:
        return Sequencer(producer_retention=60.0, **settings)  # type: ignore[arg-type]

    reader = Reader(Journal(), make)
    for entry in came:
        reader.journal.append(entry, f"m{entry.sequence}")
    reader.read()
    if pruned:
        reader.journal.append(header(1, Flag.ALONE), "m1")
        reader.read()
        reader.sequencer.prune(61.0)
    return reader


def cases() -> Iterator[tuple[str, Flag, str, Step[str], Reader]]:
    for state, (came, settings) in STATES.items():
        for flag in Flag:
            for clock, number in CLOCKS.items():
                ends = flag in ENDS
                floor = number if "floor" in clock else 0
                new = header(number, flag, min(7, number) if ends else 0, floor)
                reader = reach(came, settings)
                position = reader.journal.append(new, f"m{number}")
                step = reader.sequencer.feed(position, new, f"m{number}", 62.0)
                yield state, flag, clock, step, reader


def describe(step: Step[str]) -> str:
    reported = []
    for effect in step.effects:
        if isinstance(effect, Batch):
            reported.append(" ".join(placed.message for placed in effect.messages))
        else:
            reported.append(f"positions {effect.first_position} to {effect.last_position} again")
    return "; ".join(reported) or "-"


def test_every_state_flag_and_clock_leads_to_what_the_table_says() -> None:
    lines = [
        "What a sequencer makes of a message with number 3, 8, 10 or 12, by what came before.",
        "What ends a transaction begins at 7. In the states that know the producer, 1 to 9 came before.",
        "",
        f"{'state':24}{'flag':10}{'clock':29}{'outcome':21}{'processed':30}then pending",
    ]
    for state, flag, clock, step, reader in cases():
        known = reader.sequencer._states.get(P)
        ranges = known.pending.ranges() if known else []
        left = " ".join(f"{first}-{last}" for first, last in ranges) or "-"
        lines.append(f"{state:24}{flag.value:10}{clock:29}{step.outcome.value:21}{describe(step):30}{left}")
    assert_golden(TABLE, "\n".join(lines) + "\n")


def test_the_table_shows_every_outcome_that_a_header_can_have() -> None:
    shown = {step.outcome for _, _, _, step, _ in cases()}
    assert shown == set(Outcome) - {Outcome.UNSEQUENCED}
    assert shown == set(OUTCOMES.values())


def test_each_relation_can_be_met_by_the_flags_it_is_for() -> None:
    of_content = {Relation.FIRST, Relation.FURTHER}
    of_controls = {Relation.EMPTY}
    of_commits = {Relation.IN_RING, Relation.IN_JOURNAL, Relation.INCOMPLETE}
    of_all = {Relation.SEEN, Relation.PRUNED, Relation.CROWDED, Relation.TANGLED}
    wanted: dict[Flag, set[Relation]] = {
        Flag.ALONE: of_content | of_all,
        Flag.CONTINUE: of_content | of_all,
        Flag.LAST: of_commits | of_all,
        Flag.ACK: of_controls | of_commits | of_all,
        Flag.ROLLBACK: of_controls | {Relation.PENDING} | of_all,
    }
    assert set(OUTCOMES) == {(flag, relation) for flag, relations in wanted.items() for relation in relations}
