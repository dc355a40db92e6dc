"""What errors of a bridge node and of the doors of bridge processes have in common."""

from __future__ import annotations

from typing import ClassVar

from oncewire.errors import OncewireError


class BridgeError(OncewireError):
    """Base of all errors of ``bridges.node`` and ``bridges.doors``.

    Attributes:
        code: the word for it between server and client.
        is_temporary: whether the same call may succeed later without intervention.
    """

    code: ClassVar[str] = "node-error"
    is_temporary: ClassVar[bool] = False


class BadRequest(BridgeError, ValueError):
    """The caller asked for something that cannot be: its code or settings must change."""

    code = "bad-request"
