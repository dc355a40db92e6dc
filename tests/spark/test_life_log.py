"""What is shown of a failed life: the cause, however much Spark writes behind it. No JVM."""

from __future__ import annotations

from tests.spark.life_log import MAX_CHARACTERS, excerpt_of

STACK = "\tat org.apache.spark.sql.execution.Some.method(Some.scala:1)\n"


def test_a_short_log_is_shown_as_it_is() -> None:
    assert excerpt_of("all of it\n") == "all of it\n"


def test_causes_and_the_head_of_the_first_traceback_are_shown_from_anywhere_in_a_long_log() -> None:
    shown = excerpt_of(
        "start\n" * 500
        + "Traceback (most recent call last):\n  File 'job.py', line 7\n"
        + STACK * 200
        + "java.net.BindException: Address already in use\n"
        + STACK * 200
        + "Caused by: java.io.IOException: No space left on device\n"
        + STACK * 200
        + "Caused by: java.io.IOException: No space left on device\n"
        + STACK * 400
        + "the very end"
    )
    assert len(shown) <= MAX_CHARACTERS
    assert "line 7" in shown
    assert "java.net.BindException: Address already in use" in shown
    assert shown.count("Caused by: java.io.IOException: No space left on device") == 1
    assert shown.endswith("the very end")


def test_many_causes_leave_room_for_the_end() -> None:
    text = "".join(f"a.b.Exception: number {n} {'x' * 400}\n" for n in range(200)) + "the very end"
    shown = excerpt_of(text)
    assert len(shown) <= MAX_CHARACTERS
    assert "number 0" in shown
    assert shown.endswith("the very end")
