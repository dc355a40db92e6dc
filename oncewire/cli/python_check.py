"""Refuses a Python that is too old, before anything that only a new Python can read is imported.

This file must stay readable for every Python 3: no annotations of newer form, no f-strings, no `match`.
"""

import sys

OLDEST_PYTHON = (3, 11)


def complaint(version):  # type: ignore[no-untyped-def]  # old Pythons must be able to read this line
    """Returns the three lines for a Python of that version, or None where it is new enough."""
    if tuple(version[:2]) >= OLDEST_PYTHON:
        return None
    return (
        "error: Oncewire cannot run on Python %d.%d" % tuple(version[:2]),
        "why: it needs Python %d.%d or newer" % OLDEST_PYTHON,
        "what to do: install a newer Python (on Debian: sudo apt-get install -y python3 python3-venv)"
        " and install Oncewire with it",
    )


def require_new_python(version=sys.version_info):  # type: ignore[no-untyped-def]  # see `complaint`
    """Ends the process with exit code 2 and three lines on stderr where this Python is too old."""
    lines = complaint(version)
    if lines is not None:
        sys.stderr.write("\n".join(lines) + "\n")
        sys.exit(2)
