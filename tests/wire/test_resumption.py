"""The delivery-tag cases of link recovery (AMQP 1.0 section 2.6.13): as a table, and over two engines."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncewire.wire import (
    ABSENT,
    ACCEPTED,
    RELEASED,
    Accepted,
    AmqpError,
    DecodeError,
    DeliveryReceived,
    DeliveryState,
    Described,
    DispositionReceived,
    LinkAttached,
    Modified,
    Received,
    ReceiverLink,
    Rejected,
    ResumeAction,
    ResumeDecision,
    SenderLink,
    Source,
    Symbol,
    Target,
    ULong,
    UnsettledMap,
    bound_map,
    decide,
    encode_data_message,
    payload_from,
    source_plan,
    target_plan,
    unsettled_map_bound,
)
from oncewire.wire.resumption import Presence
from tests.support.engines import Pipe, joined, one, only

State = DeliveryState | Presence | None
EARLY, LATE = Received(0, 10), Received(0, 20)
MESSAGE = encode_data_message(b"a body of some length, so that it can be cut")


@dataclass(frozen=True)
class Case:
    """One delivery-tag of the specification's example."""

    number: int
    name: str
    source: State
    target: State
    expected: ResumeDecision
    # What the target must hear about this tag over the wire.
    payload: bytes | None = None
    settled: bool = False
    resume: bool = True
    aborted: bool = False

    @property
    def tag(self) -> bytes:
        return b"tag-%d" % self.number


def resumed(start: Received) -> ResumeDecision:
    return ResumeDecision(ResumeAction.RESUME, None, start)


CASES = (
    Case(
        1, "the target never got it", None, ABSENT, ResumeDecision(ResumeAction.RESEND), MESSAGE, resume=False
    ),
    Case(2, "the target got a part", None, EARLY, resumed(EARLY), MESSAGE[10:]),
    Case(
        3,
        "the target has an outcome",
        None,
        ACCEPTED,
        ResumeDecision(ResumeAction.SETTLE, ACCEPTED),
        b"",
        True,
    ),
    Case(4, "the target knows only the tag", None, None, resumed(Received(0, 0)), MESSAGE),
    Case(
        5,
        "sent in part, never got",
        EARLY,
        ABSENT,
        ResumeDecision(ResumeAction.RESEND),
        MESSAGE,
        resume=False,
    ),
    Case(6, "sent in part, got more", EARLY, LATE, resumed(LATE), MESSAGE[20:]),
    Case(
        7, "sent in part, got less", LATE, EARLY, ResumeDecision(ResumeAction.ABORT), b"", True, aborted=True
    ),
    Case(
        8,
        "sent in part, has an outcome",
        EARLY,
        Rejected(),
        ResumeDecision(ResumeAction.SETTLE, Rejected()),
        b"",
        True,
    ),
    Case(
        9,
        "sent in part, got nothing",
        EARLY,
        None,
        ResumeDecision(ResumeAction.ABORT),
        b"",
        True,
        aborted=True,
    ),
    Case(10, "the target has settled it", ACCEPTED, ABSENT, ResumeDecision(ResumeAction.FORGET, ACCEPTED)),
    Case(
        11,
        "ended at the source alone",
        RELEASED,
        EARLY,
        ResumeDecision(ResumeAction.ABORT),
        b"",
        True,
        aborted=True,
    ),
    Case(
        12, "the same outcome", ACCEPTED, ACCEPTED, ResumeDecision(ResumeAction.SETTLE, ACCEPTED), b"", True
    ),
    Case(13, "different outcomes", RELEASED, ACCEPTED, ResumeDecision(ResumeAction.RESTATE, RELEASED), b""),
    Case(
        14, "ended, got nothing", RELEASED, None, ResumeDecision(ResumeAction.ABORT), b"", True, aborted=True
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.number}: {case.name}")
def test_the_source_decides_as_the_specification_says(case: Case) -> None:
    decision = decide(case.source, case.target)
    if decision.action is ResumeAction.ABORT:
        assert decision.action is case.expected.action
    else:
        assert decision == case.expected


def test_there_are_14_cases_and_each_action_of_a_complete_map_occurs() -> None:
    assert [case.number for case in CASES] == list(range(1, 15))
    assert {case.expected.action for case in CASES} == set(ResumeAction) - {ResumeAction.WAIT}


def test_what_only_the_target_holds_is_settled() -> None:
    for state in (None, EARLY, ACCEPTED):
        assert decide(ABSENT, state) == ResumeDecision(ResumeAction.FORGET)


def test_details_of_an_outcome_do_not_make_it_another_one() -> None:
    told = Rejected(AmqpError(Symbol("x"), "why"))
    assert decide(told, Rejected()) == ResumeDecision(ResumeAction.SETTLE, told)
    assert decide(Modified(True), Modified(False, True)).action is ResumeAction.SETTLE


def test_a_state_of_a_transaction_is_no_outcome() -> None:
    assert decide(None, Described(ULong(0x34), [b"txn"])) == resumed(Received(0, 0))


# --- incomplete maps (C-4) --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.number}: {case.name}")
def test_an_entry_missing_from_an_incomplete_map_proves_nothing(case: Case) -> None:
    decision = decide(case.source, case.target, target_incomplete=True)
    if case.target is ABSENT:
        assert decision.action is ResumeAction.WAIT
    else:
        assert decision == decide(case.source, case.target)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.number}: {case.name}")
def test_nothing_new_is_sent_while_our_own_map_is_incomplete(case: Case) -> None:
    decision = decide(case.source, case.target, source_incomplete=True)
    if case.expected.action is ResumeAction.RESEND:
        assert decision.action is ResumeAction.WAIT
    else:
        assert decision == decide(case.source, case.target)
    assert decide(ABSENT, case.target, source_incomplete=True).action is ResumeAction.WAIT


# --- over two engines -------------------------------------------------------------------------------------------------


def present(state: State) -> dict[bytes, DeliveryState | None]:
    return {} if isinstance(state, Presence) else {b"": state}


def maps() -> tuple[UnsettledMap, UnsettledMap]:
    source: UnsettledMap = {}
    target: UnsettledMap = {b"only-target": ACCEPTED}
    for case in CASES:
        for state in present(case.source).values():
            source[case.tag] = state
        for state in present(case.target).values():
            target[case.tag] = state
    return source, target


def carry_out(sender: SenderLink, tag: bytes, decision: ResumeDecision) -> int | None:
    """What an owner of a sender link does about one delivery."""
    match decision.action:
        case ResumeAction.RESEND:
            return sender.send(tag, MESSAGE)
        case ResumeAction.RESUME:
            assert decision.start is not None
            return sender.send(tag, payload_from(MESSAGE, decision.start), resume=True)
        case ResumeAction.SETTLE:
            sender.send(tag, b"", resume=True, settled=True, state=decision.state)
        case ResumeAction.RESTATE:
            return sender.send(tag, b"", resume=True, state=decision.state)
        case ResumeAction.ABORT:
            sender.send(tag, b"", resume=True, aborted=True, state=decision.state)
        case _:
            pass
    return None


def reattached(source_is_client: bool, pipe: Pipe) -> tuple[SenderLink, ReceiverLink]:
    """Two engines with a link that was suspended and attached again, both maps exchanged."""
    first = pipe.link_to_server() if source_is_client else pipe.link_to_client()
    first[0].detach(False)
    pipe.forget()
    source, target = maps()
    session = pipe.client.sessions[0]
    termini = (Source("t"), Target("t"))
    if source_is_client:
        session.attach_sender("link", source=termini[0], target=termini[1], unsettled=source)
        theirs = one(pipe.hear_server(), LinkAttached).link
        theirs.reply(source=termini[0], target=termini[1], unsettled=target)
        ours = one(pipe.hear_client(), LinkAttached).link
        pair = (ours, theirs)
    else:
        session.attach_receiver("link", source=termini[0], target=termini[1], unsettled=target)
        theirs = one(pipe.hear_server(), LinkAttached).link
        theirs.reply(source=termini[0], target=termini[1], unsettled=source)
        ours = one(pipe.hear_client(), LinkAttached).link
        pair = (theirs, ours)
    sender, receiver = pair
    assert isinstance(sender, SenderLink)
    assert isinstance(receiver, ReceiverLink)
    receiver.grant(100)
    pipe.forget()
    return sender, receiver


def exchanged(link: SenderLink | ReceiverLink) -> tuple[UnsettledMap, UnsettledMap]:
    """Our map and the peer's, as they were on the wire."""
    assert link.local_attach is not None
    assert link.remote_attach is not None
    ours, theirs = link.local_attach.unsettled, link.remote_attach.unsettled
    assert ours is not None
    assert theirs is not None
    return ours, theirs


@pytest.mark.parametrize("frame_size", [4096, 700])
@pytest.mark.parametrize("source_is_client", [True, False])
def test_all_cases_at_once_leave_both_ends_with_nothing_unsettled(
    source_is_client: bool, frame_size: int
) -> None:
    pipe = joined(both={"max_frame_size": frame_size})
    sender, receiver = reattached(source_is_client, pipe)
    plan = source_plan(*exchanged(sender))
    expected = dict(target_plan(*exchanged(receiver)))
    assert expected.pop(b"only-target").action is ResumeAction.FORGET
    assert [tag for tag, _ in plan] == [case.tag for case in CASES]
    for tag, decision in plan:
        carry_out(sender, tag, decision)
    heard = {
        event.tag: event
        for event in only(pipe.hear_server() if source_is_client else pipe.hear_client(), DeliveryReceived)
    }
    answers = []
    for case in CASES:
        if case.payload is None:
            assert case.tag not in heard
            continue
        event = heard[case.tag]
        assert (event.payload, event.settled, event.resume, event.aborted) == (
            case.payload,
            case.settled,
            case.resume,
            case.aborted,
        )
        assert event.resume == (case.tag in expected)
        if case.expected.action in {ResumeAction.SETTLE, ResumeAction.RESTATE}:
            assert event.state == case.expected.state
        if case.tag in expected:
            assert expected[case.tag].action is case.expected.action
        if not event.settled:
            answers.append(event.delivery_id)
    receiver.dispose(answers, ACCEPTED, False)
    told = only(pipe.hear_client() if source_is_client else pipe.hear_server(), DispositionReceived)
    sender.settle([number for event in told for number, _ in event.deliveries])
    pipe.run()
    assert not sender.session.sent_unsettled
    assert not receiver.session.received_unsettled


def test_a_link_that_was_never_resumed_has_no_map() -> None:
    pipe = Pipe()
    sender, receiver = pipe.link_to_server()
    for link in (sender, receiver):
        assert link.local_attach is not None
        assert link.local_attach.unsettled is None
    assert source_plan({b"a": None, b"b": ACCEPTED}, None) == [
        (b"a", ResumeDecision(ResumeAction.RESEND)),
        (b"b", ResumeDecision(ResumeAction.FORGET, ACCEPTED)),
    ]
    assert target_plan({b"a": None}, None) == [(b"a", ResumeDecision(ResumeAction.FORGET))]


def test_plans_pass_the_incomplete_flags_on() -> None:
    assert source_plan({b"a": None}, {}, remote_incomplete=True) == [
        (b"a", ResumeDecision(ResumeAction.WAIT))
    ]
    assert source_plan({b"a": None}, {}, local_incomplete=True) == [(b"a", ResumeDecision(ResumeAction.WAIT))]
    assert target_plan({b"a": None}, {}, remote_incomplete=True) == [
        (b"a", ResumeDecision(ResumeAction.WAIT))
    ]
    assert target_plan({b"a": None}, {}, local_incomplete=True) == [
        (b"a", ResumeDecision(ResumeAction.FORGET))
    ]


# --- maps and payloads ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("frame_size", [512, 600, 4096, 1 << 20])
def test_a_bounded_map_fits_the_frame_it_is_made_for(frame_size: int) -> None:
    bound = unsettled_map_bound(frame_size)
    states: list[DeliveryState | None] = [
        None,
        ACCEPTED,
        Rejected(AmqpError(Symbol("x"), "y" * 1000)),
        LATE,
        Modified(True),
    ]
    full: UnsettledMap = {b"%032d" % number: states[number % 5] for number in range(bound + 10)}
    kept, incomplete = bound_map(full, frame_size)
    assert incomplete
    assert list(kept) == list(full)[:bound]
    assert bound_map(kept, frame_size) == (kept, False)
    pipe = joined(both={"max_frame_size": frame_size})
    pipe.client.open()
    session = pipe.client.begin()
    pipe.run()
    address = "a topic with a name of some length"
    session.attach_receiver(
        "a link with a name of some length",
        source=Source(address),
        target=Target(address),
        unsettled=kept,
        incomplete_unsettled=incomplete,
        desired_capabilities=["topic-exactly-once"],
    )
    remote = one(pipe.hear_server(), LinkAttached).link.remote_attach
    assert remote is not None
    assert remote.unsettled == kept
    assert remote.incomplete_unsettled


def test_a_small_map_is_complete() -> None:
    assert bound_map({b"a": ACCEPTED, b"b": None}, 4096) == ({b"a": Accepted(), b"b": None}, False)


@given(cut=st.integers(0, len(MESSAGE)))
def test_both_parts_of_a_message_make_the_whole(cut: int) -> None:
    assert MESSAGE[:cut] + payload_from(MESSAGE, Received(0, cut)) == MESSAGE


def test_sections_are_counted() -> None:
    sections = [b"\x00\x53\x73\xc0\x04\x01\xa1\x01m", b"\x00\x53\x75\xa0\x03abc", b"\x00\x53\x75\xa0\x02de"]
    message = b"".join(sections)
    for number in range(4):
        assert payload_from(message, Received(number, 0)) == b"".join(sections[number:])
    assert payload_from(message, Received(1, 5)) == b"abc" + sections[2]
    for start in (Received(3, 1), Received(4, 0)):
        with pytest.raises(DecodeError):
            payload_from(message, start)
