"""A router's annotations, without a router."""

from __future__ import annotations

from router.clients.message_edits import Annotator


class NoLogins:
    """Nobody can log in."""

    has_logins = False


def annotate(message: bytes, publisher: str, tag: bytes, session: int, user: str) -> bytes:
    """The message as a router without logins passes it on."""
    return Annotator(NoLogins()).annotate(message, publisher, tag, session, user)
