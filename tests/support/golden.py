"""Golden files: what a program printed, kept beside the test as readable text.

``ONCEWIRE_WRITE_GOLDEN=1`` writes them anew; the change is then read and committed like any other.
"""

from __future__ import annotations

import os
from pathlib import Path

WRITE_VARIABLE = "ONCEWIRE_WRITE_GOLDEN"


def assert_golden(file: Path, text: str) -> None:
    """Asserts that a golden file says exactly `text`; writes it instead where the variable asks for that."""
    if os.environ.get(WRITE_VARIABLE) == "1":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert file.exists(), f"{file} is missing; {WRITE_VARIABLE}=1 writes it"
    assert text == file.read_text(encoding="utf-8")
