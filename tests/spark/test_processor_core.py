"""One call of a processor's function, without Spark: outputs, errors, nothing; and when a query is restarted."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterator

import pytest

from bridges.node.errors import BadRequest, JournalReplaced
from bridges.spark.processor_core import AttemptKind, Delivery, Input, Output, Step, StopAttempt, attempt
from bridges.spark.processor_join_core import (
    MAX_INPUTS,
    InputJournal,
    Join,
    Place,
    attempt_end,
    check_journals,
    input_journals,
    offset_of,
    places_of,
    shares,
    steps_between,
    text_of,
)
from bridges.spark.processor_restart_core import HOPELESS, BackOff, cause_of, is_hopeless
from oncewire.client.delivery_hash import delivery_hash
from oncewire.wire import BodyKind, Message, Properties, Symbol, decode_message, encode_data_message
from tests.spark.processor_life import hash_in

GIVEN = [
    Input("orders", "j1", 7, 5, encode_data_message(b"one")),
    Input("payments", "j2", 9, 6, encode_data_message(b"two")),
]
KEY = delivery_hash("p", {"orders": "j1:7", "payments": "j2:9"})


def test_an_output_carries_the_hash_of_processor_and_positions() -> None:
    seen: list[Delivery] = []

    def both(delivery: Delivery) -> bytes:
        seen.append(delivery)
        return b"%s+%s" % (delivery["orders"].body, delivery["payments"].body)

    (row,) = attempt(Step("p", both, "out"), GIVEN, 3, 1)
    assert (row.kind, row.delivery_hash, row.failed, row.topic) == (AttemptKind.OUTPUT, KEY, False, "out")
    assert row.payload is not None
    message = decode_message(row.payload)
    assert message.body == b"one+two"
    assert hash_in(message) == KEY
    (delivery,) = seen
    assert (delivery.delivery_hash, delivery.batch, delivery.attempt) == (KEY, 3, 1)
    assert delivery.inputs == tuple(GIVEN)
    with pytest.raises(ValueError, match="too many values"):
        _ = delivery.message


def test_a_function_may_return_messages_and_several() -> None:
    def many(delivery: Delivery) -> Iterator[Output]:
        yield Message("text", BodyKind.VALUE, properties=Properties(subject="s"), annotations={Symbol("x-opt-a"): 1})
        yield b"%s" % delivery.message.body

    rows = attempt(Step("p", many, "out"), GIVEN[:1])
    first, second = (decode_message(row.payload or b"") for row in rows)
    assert (first.body, first.kind, first.annotations[Symbol("x-opt-a")]) == ("text", BodyKind.VALUE, 1)
    assert first.properties is not None
    assert first.properties.subject == "s"
    assert second.body == b"one"
    assert hash_in(first) == hash_in(second) == delivery_hash("p", {"orders": "j1:7"})


@pytest.mark.parametrize("nothing", [None, [], [None]])
def test_a_function_that_returns_nothing_has_delivered(nothing: list[Output] | None) -> None:
    (row,) = attempt(Step("p", lambda _: nothing, "out"), GIVEN)
    assert (row.kind, row.delivery_hash, row.failed) == (AttemptKind.NIL, KEY, False)
    assert (row.topic, row.payload) == (None, None)


def fails(delivery: Delivery) -> Iterator[Output]:
    yield b"written before the error"
    raise ValueError(f"bad order {delivery['orders'].body!r}")


def test_a_handled_error_becomes_an_error_message_and_nothing_else() -> None:
    (row,) = attempt(Step("p", fails, "out", "errors"), GIVEN)
    assert (row.kind, row.delivery_hash, row.failed, row.topic) == (AttemptKind.ERROR, KEY, True, "errors")
    message = decode_message(row.payload or b"")
    assert hash_in(message) == KEY
    assert message.properties is not None
    assert message.properties.content_type == "application/json"
    assert isinstance(message.body, bytes)
    reported = json.loads(message.body)
    assert reported["error"] == "ValueError"
    assert reported["text"] == "bad order b'one'"
    assert reported["positions"] == {"orders": "j1:7", "payments": "j2:9"}
    assert base64.b64decode(reported["inputs"]["payments"]) == GIVEN[1].payload


def test_a_handled_error_without_error_topic_is_logged_with_its_hash_and_delivered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR):
        (row,) = attempt(Step("p", fails, "out"), GIVEN)
    assert (row.kind, row.failed, row.payload) == (AttemptKind.NIL, True, None)
    assert f"delivery {KEY} of orders j1:7, payments j2:9 failed" in caplog.text
    assert "ValueError: bad order" in caplog.text


@pytest.mark.parametrize("error", [KeyError("k"), StopAttempt("database is away"), MemoryError(), KeyboardInterrupt()])
def test_an_unhandled_error_goes_through(error: BaseException) -> None:
    def function(_: Delivery) -> None:
        raise error

    with pytest.raises(type(error)):
        attempt(Step("p", function, "out", "errors", (ValueError,)), GIVEN)


def test_what_says_nothing_about_the_message_is_never_handled() -> None:
    def function(_: Delivery) -> None:
        raise StopAttempt

    with pytest.raises(StopAttempt):
        attempt(Step("p", function, "out", "errors"), GIVEN)


def test_a_message_that_cannot_be_decoded_is_an_error_of_the_message() -> None:
    (row,) = attempt(Step("p", lambda _: b"x", "out", "errors", ()), [Input("orders", "j1", 7, 5, b"\x00\x53")])
    assert (row.kind, row.delivery_hash) == (AttemptKind.ERROR, delivery_hash("p", {"orders": "j1:7"}))


def test_an_output_that_is_no_message_or_has_no_topic_stops_the_query() -> None:
    with pytest.raises(TypeError, match="processor p returned str: return bytes"):
        attempt(Step("p", lambda _: ["text"], "out", "errors"), GIVEN)  # type: ignore[list-item]
    with pytest.raises(TypeError, match="it has no output"):
        attempt(Step("p", lambda _: b"x", None, "errors"), GIVEN)


# --- what is read together


def test_each_zipped_input_has_a_journal_and_alts_share_one() -> None:
    assert input_journals("p", ("a",), None) == (InputJournal("p", ("a",)),)
    assert input_journals("p", ("a", "b"), Join.ALTS) == (InputJournal("p", ("a", "b")),)
    zipped = (InputJournal("p.0", ("a",)), InputJournal("p.1", ("b",)))
    assert input_journals("p", ("a", "b"), Join.ZIP) == zipped


@pytest.mark.parametrize("inputs", [(), ("a", "a"), ("",), tuple(map(str, range(MAX_INPUTS + 1)))])
def test_inputs_that_cannot_be_read_are_refused(inputs: tuple[str, ...]) -> None:
    with pytest.raises(BadRequest, match="each another topic"):
        input_journals("p", inputs, Join.ALTS)


def test_several_inputs_need_a_join() -> None:
    with pytest.raises(BadRequest, match="give join='zip'"):
        input_journals("p", ("a", "b"), None)


def test_an_attempt_ends_where_the_shortest_input_does_and_at_the_limit() -> None:
    start = (Place("j1", 10), Place("j2", 4))
    assert attempt_end(start, [15, 6], None) == (Place("j1", 12), Place("j2", 6))
    assert attempt_end(start, [15, 9], 3) == (Place("j1", 13), Place("j2", 7))
    assert attempt_end(start, [10, 9], None) == start
    assert attempt_end(start, [9, 9], None) == start  # a journal that was restored from a copy goes not backwards


def test_offsets_are_the_same_text_for_the_same_places() -> None:
    journals = input_journals("p", ("a", "b"), Join.ZIP)
    places = (Place("j1", 1), Place("j2", 2))
    offset = offset_of(journals, places)
    assert list(offset) == ["p.0", "p.1"]
    turned = dict(reversed(offset.items()))
    assert places_of(journals, turned) == places
    assert text_of(turned) == text_of(offset)
    with pytest.raises(BadRequest, match=r"the processor reads p;"):
        places_of(input_journals("p", ("a",), None), offset)


def test_positions_of_another_journal_are_refused() -> None:
    journals = input_journals("p", ("a", "b"), Join.ZIP)
    places = (Place("j1", 1), Place("j2", 2))
    check_journals(journals, places, ["j1", "j2"])
    with pytest.raises(JournalReplaced, match=r"subscription p\.1 cannot be read from position 2 on"):
        check_journals(journals, places, ["j1", "j3"])


def test_journals_advance_together() -> None:
    assert steps_between((Place("j", 1), Place("k", 5)), (Place("j", 3), Place("k", 7))) == 2
    with pytest.raises(BadRequest, match="same number"):
        steps_between((Place("j", 1), Place("k", 5)), (Place("j", 3), Place("k", 8)))


def test_tasks_share_all_steps_in_order_and_none_is_without() -> None:
    assert shares(5, 2) == [(0, 2), (2, 5)]
    assert shares(2, 8) == [(0, 1), (1, 2)]
    assert shares(0, 4) == []
    assert shares(7, 0) == [(0, 7)]


# --- starting again


def test_pauses_double_up_to_the_cap_and_begin_anew_after_a_healthy_run() -> None:
    back_off = BackOff(first_s=1.0, cap_s=5.0, healthy_s=100.0)
    assert [back_off.pause_s(1.0, 0.0) for _ in range(4)] == [1.0, 2.0, 4.0, 5.0]
    assert back_off.pause_s(99.0, 1.0) == 2.5
    assert back_off.pause_s(100.0, 0.0) == 1.0


def test_only_errors_that_need_somebody_are_hopeless() -> None:
    for kind in HOPELESS:
        name = f"{kind.__module__}.{kind.__name__}"
        assert is_hopeless(f"[X] Traceback:\n{name}: sink p: why; do that\n at java")
        assert cause_of(f"[X] It failed: {name}: sink p: why; do that\n SQLSTATE: 1") == f"{name}: sink p: why; do that"
    for text in (
        "bridges.node.errors.NodeUnavailable: the node is away",
        "ValueError: bridges.node.errors.BadRequest",
        "psycopg.OperationalError: away",
    ):
        assert not is_hopeless(text)


def test_a_function_with_several_outputs_names_the_topic_of_each_message() -> None:
    step = Step("p", lambda _: {"out": [b"1", b"2"], "more": b"3", "none": None}, ("out", "more", "none"))
    rows = attempt(step, GIVEN)
    assert [(row.topic, decode_message(row.payload or b"").body) for row in rows] == [
        ("out", b"1"),
        ("out", b"2"),
        ("more", b"3"),
    ]
    assert {row.delivery_hash for row in rows} == {KEY}
    (only,) = attempt(Step("p", lambda _: {"out": b"1"}, "out"), GIVEN)
    assert only.topic == "out"


@pytest.mark.parametrize(
    ("returned", "why"),
    [(b"1", "without a topic"), ({"other": b"1"}, "for 'other'"), ({"out": "text"}, "returned str")],
)
def test_a_message_for_no_output_of_the_processor_stops_the_query(returned: object, why: str) -> None:
    with pytest.raises(TypeError, match=why):
        attempt(Step("p", lambda _: returned, ("out", "more"), "errors"), GIVEN)  # type: ignore[arg-type,return-value]


def test_an_unhandled_error_names_its_delivery() -> None:
    def fails(_: Delivery) -> Output:
        raise OSError("away")

    with pytest.raises(OSError, match="away") as caught:
        attempt(Step("p", fails, "out", None, (ValueError,)), GIVEN)
    assert caught.value.__notes__ == [f"processor p: delivery {KEY} of orders j1:7, payments j2:9"]


STREAM = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
PYTHON = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "x.py", line 1, in f
    raise KeyError("k")
KeyError: 'k'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "x.py", line 2, in f
    raise OSError("away")
OSError: away
"""
NOTE = "processor p: delivery 5 of orders j1:7\n SQLSTATE: 38000\n=== Streaming Query ===\nIdentifier: x\n"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (STREAM + PYTHON + NOTE, "OSError: away (processor p: delivery 5 of orders j1:7)"),
        (STREAM + PYTHON, "OSError: away"),
        (STREAM + "Python worker exited unexpectedly (crashed)\n\tat java", "a Python worker of Spark crashed"),
        (STREAM + "[OUT] no space\nmore", "[OUT] no space"),
        ("anything", "anything"),
    ],
)
def test_the_cause_of_a_failure_is_one_line(text: str, cause: str) -> None:
    found = cause_of(text)
    assert found.startswith(cause)
    assert "\n" not in found
