"""A client reads why a message came to a dead-letter topic (I-3e)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oncewire.client import DeadLetter, Delivery
from oncewire.client.cli_subscribe import _print
from oncewire.wire.annotations import annotate_dead_letter

BODY = b"\x00\x53\x75\xa0\x03abc"
WHY = DeadLetter("max-attempts", "orders", "till/s", 3, "app:bad: no", 2)


def delivery(payload: bytes, message_format: int = 0) -> Delivery:
    receiver: Any = None
    return Delivery(receiver, 1, b"t", payload, 0, False, 1, message_format)


def letter() -> bytes:
    return annotate_dead_letter(
        BODY,
        reason=WHY.reason,
        topic=WHY.topic,
        subscription=WHY.subscription,
        attempts=WHY.attempts,
        error=WHY.error,
        count=WHY.count,
    )


def test_a_dead_letter_says_why_and_another_message_does_not() -> None:
    assert delivery(letter()).dead_letter == WHY
    assert delivery(BODY).dead_letter is None
    assert delivery(letter(), message_format=1).dead_letter is None


def test_the_command_prints_why_as_json(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    _print(delivery(letter()), as_json=True)
    line = json.loads(capfdbinary.readouterr().out)
    assert (line["body"], line["dead_letter"]["subscription"], line["dead_letter"]["count"]) == ("abc", "till/s", 2)
