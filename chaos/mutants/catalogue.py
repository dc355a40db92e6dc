"""All edits, and the rules that none can take out.

An edit is named by the counterexample (C1 to C16), mutant or finding (F1 to F39) of docs/counterexamples.md that made
its rule, or by what the edited code does.
"""

from __future__ import annotations

from dataclasses import dataclass

from chaos.mutants.edits import Edit, read_edits
from chaos.sources import source_of

__all__ = ["ALL", "DIRECTED", "EDITS", "LATER", "WITHOUT", "Elsewhere", "by_name"]

RULES = source_of("chaos.mutants").parent / "rules"
"""A file for each part of the code, a table for each edit: see `chaos.mutants.edits.Edit`."""
_FILES = (
    "store ingress egress channel client drain operator patience identity require sharing filter copies policy "
    "letters expiry large departure resuming annotations"
)
"""In the order of the table of mutants."""

EDITS: tuple[Edit, ...] = tuple(edit for name in _FILES.split() for edit in read_edits(RULES / f"{name}.toml"))
"""Shown by seeds."""
DIRECTED = read_edits(RULES / "directed.toml")
"""Shown by a schedule that is written down in `tests/delivery_records/scenarios`, which no seed finds."""
ALL = (*EDITS, *DIRECTED)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Why seeds cannot show that a rule is missing, and the test that does."""

    reason: str
    test: str
    """`path::function`, below tests."""


WITHOUT: dict[str, Elsewhere] = {
    "K-1": Elsewhere(
        "the order in which a process starts: topology.membership carries it out, and the simulator for its routers",
        "topology/test_membership.py::test_the_first_thing_told_is_a_snapshot_that_holds_the_routers_own_key",
    ),
    "K-1a": Elsewhere(
        "one number instead of two: topology.membership makes the lease and the incarnation from it",
        "topology/test_membership.py::test_the_incarnation_is_the_id_of_the_lease_its_key_lives_under",
    ),
    "K-1b": Elsewhere(
        "who may be a neighbour: in the simulator all routers are honest",
        "router/test_neighbours.py::test_a_router_that_shows_no_proof_or_a_wrong_one_gets_no_credit_and_is_refused",
    ),
    "K-3b": Elsewhere(
        "what becomes of an exception of our own code: in the simulator each one is a finding that ends the seed",
        "delivery_records/test_faults.py::test_a_fault_with_one_transfer_ends_its_link_and_nothing_is_lost_or_doubled",
    ),
    "K-8": Elsewhere(
        "carried out by the process; without it a router that stops is one that fails, which is slower and as safe",
        "delivery_records/test_barrier.py::test_a_router_that_left_in_order_needs_no_grace",
    ),
    "A-2a": Elsewhere(
        "without it the older of two attaches may win and steal the link; it may do so over two routers anyway (N-1)",
        "delivery_records/test_attaching.py::test_a_second_attach_of_one_identity_waits_for_the_first",
    ),
    "A-8": Elsewhere(
        "frames of an AMQP link, which the router's shell writes; and a limit to how often a link is stolen",
        "delivery_records/test_steals.py::test_the_third_steal_is_refused_and_names_both_clients",
    ),
    "I-1a": Elsewhere(
        "the engine puts transfers together; of a body in parts the simulator judges only that its message arrives",
        "delivery_records/test_channels.py::test_a_large_message_travels_in_pieces_and_arrives_whole",
    ),
    "I-1b": Elsewhere(
        "sections of a message, which simulated bodies do not have",
        "wire/test_message_annotations.py::test_header_and_bare_message_are_copied_byte_for_byte",
    ),
    "I-4a": Elsewhere(
        "without it the entry goes with the next attach, which T_settle brings about after 30 s",
        "delivery_records/test_transfers.py::test_settling_early_means_giving_up_and_a_held_copy_is_dropped",
    ),
    "I-8": Elsewhere(
        "without it the key of a publisher that closed goes after T_pub, and E-6 with it: later, and as safe",
        "delivery_records/test_closing.py::test_a_close_is_answered_only_when_the_watch_shows_the_deletion",
    ),
    "T-2": Elsewhere(
        "one copy instead of several, and what a full output drops: the router's shell does both; T-1 and T-9 see gaps",
        "router/test_peer_output.py::test_bodies_that_are_too_many_or_too_old_are_dropped_and_control_is_not",
    ),
    "C-2": Elsewhere(
        "a consequence of I-3 and C-1, which have edits; the window's bound is a matter of memory",
        "delivery_records/test_publisher_credit.py::test_a_window_that_nobody_accepts_ends_the_credit",
    ),
    "C-5": Elsewhere(
        "simulated subscribers do not drain, for nothing they are promised depends on it",
        "delivery_records/test_subscriber_credit.py::test_a_drain_is_answered_behind_what_is_held",
    ),
    "X-1": Elsewhere(
        "a relay of the router's shell: the record core sees stock publishers, which the simulator has",
        "router/test_anonymous_terminus.py::test_messages_go_to_the_topics_they_name_and_their_outcomes_come_back",
    ),
    "X-2": Elsewhere(
        "addresses that the shell makes: to the record core they are topics of another virtual host",
        "router/test_anonymous_terminus.py::test_a_dynamic_source_gets_an_address_that_ends_with_its_link",
    ),
    "S-2": Elsewhere(
        "simulated clients have no tasks; the client's own code runs on a loop that shuffles them, and is edited there",
        "client/test_shell_schedules.py::test_a_check_or_lock_taken_out_of_the_shell_is_noticed",
    ),
}
"""Rules that no edit takes out, or whose absence no guarantee shows."""

LATER: frozenset[str] = frozenset()
"""Rules that are not built."""


def by_name(name: str) -> Edit:
    """The edit of that name."""
    return next(edit for edit in ALL if edit.name == name)
