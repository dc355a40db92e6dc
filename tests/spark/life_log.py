"""What a failed test shows of the log of a process with a JVM: not only its end, which is the end of Spark's stack."""

from __future__ import annotations

import re
from pathlib import Path

MAX_CHARACTERS = 6_000
_HEAD, _CAUSES, _LINE = 1_500, 2_000, 300
_CAUSE = re.compile(r"(?:\s*Caused by: |(?:[\w.$]+\.)?[\w$]*(?:Exception|Error)\b).*")
_TRACEBACK = "Traceback (most recent call last)"


def told(log: Path) -> str:
    """As much of a log as says why its process failed: MAX_CHARACTERS at most."""
    return told_by(log.read_text(errors="replace"))


def told_by(text: str) -> str:
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
