"""What a failed test shows of the log of a process with a JVM: not only its end, which is the end of Spark's stack."""

from __future__ import annotations

import re
from pathlib import Path

MAX_CHARACTERS = 6_000
_HEAD, _CAUSES, _LINE = 1_500, 2_000, 300
_CAUSE = re.compile(r"(?:\s*Caused by: |(?:[\w.$]+\.)?[\w$]*(?:Exception|Error)\b).*")
_TRACEBACK = "Traceback (most recent call last)"
_FAILURES_OF_SPARK = ("Python worker failed to connect back", "Task not serializable")
"""Spark waits 10 s for a Python process; and two queries of a session may start while a plan of one is serialized, in
which nothing is ours but bytes."""


def is_failure_of_spark(log: Path) -> bool:
    """Whether Spark has ended its process, as it does now and then on a busy machine: one more crash."""
    text = log.read_text(errors="replace")
    return any(each in text for each in _FAILURES_OF_SPARK)


def excerpt(log: Path) -> str:
    """As much of a log as says why its process failed: MAX_CHARACTERS at most."""
    return excerpt_of(log.read_text(errors="replace"))


def excerpt_of(text: str) -> str:
    """The head of the first traceback, each line of an exception or its cause once, and the end."""
    if len(text) <= MAX_CHARACTERS:
        return text
    parts = []
    start = text.find(_TRACEBACK)
    if start >= 0:
        parts.append(f"first traceback:\n{text[start : start + _HEAD]}")
    causes = dict.fromkeys(line.strip()[:_LINE] for line in text.splitlines() if _CAUSE.fullmatch(line))
    if causes:
        parts.append("exceptions:\n" + "\n".join(causes)[:_CAUSES])
    end = "\n...\nthe end:\n"
    begun = "\n...\n".join(parts)
    return begun + end + text[-(MAX_CHARACTERS - len(begun) - len(end)) :]
