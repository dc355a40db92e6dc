"""What all errors that an application may get have in common: what, why, and what to do."""

from __future__ import annotations


class OncewireError(Exception):
    """Base of the errors of the client, of stores and of what stands on them.

    Args:
        what: what could not be done.
        why: the cause, as far as it is known.
        fix: what the caller can do about it.
    """

    def __init__(self, what: str, why: str, fix: str) -> None:
        super().__init__(what, why, fix)
        self.what = what
        self.why = why
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.what}: {self.why}; {self.fix}"
