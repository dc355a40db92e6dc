"""An entry of a publisher's unsettled map."""

from __future__ import annotations

from oncewire.client.outcomes import Outcome

TAG_BYTES = 8
"""A tag is the message's number, big endian (P-2): fits verbatim into a network tag and never wraps."""


class MapEntry:
    """An entry of the map. Hot path: a plain class."""

    __slots__ = (
        "answered",
        "delivery_id",
        "handed",
        "in_doubt",
        "number",
        "outcome",
        "payload",
        "presented",
        "settled_by_peer",
        "start",
        "tag",
    )

    def __init__(self, number: int, payload: bytes, in_doubt: bool = False, handed: bool = False) -> None:
        self.number = number
        self.tag = number.to_bytes(TAG_BYTES, "big")
        self.payload = payload
        self.in_doubt = in_doubt
        self.handed = handed  # a transfer of it may have reached a socket of this session (P-1)
        self.presented = False  # stands in the map of the present attach: must be sent on it
        self.answered = False  # an outcome came on the present attach: can be settled there
        self.delivery_id = 0
        self.settled_by_peer = False
        self.outcome: Outcome | None = None
        self.start = 0  # a revision before which it was sent, the lowest that is known; 0: none is (I-6a)
