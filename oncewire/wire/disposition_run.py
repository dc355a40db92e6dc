"""Dispositions one by one, taken as the range they are.

A peer may write a disposition for each delivery where a range would do (2.7.6 allows both); qpid-proton does so when it
settles what it sent. Such frames differ in the delivery-id alone, by one from frame to frame, and nothing comes in
between. So they are compared as bytes, and one range is carried out.
"""

from __future__ import annotations

from typing import Final

from oncewire.wire.frames import FRAME_HEADER_SIZE, FrameParser
from oncewire.wire.performatives import Disposition

# Descriptor and constructor of a disposition with small fields.
_START: Final = b"\x00\x53\x15\xc0"
_START_END: Final = FRAME_HEADER_SIZE + 4
# Behind them: size, count and role of a byte each; then the constructor of ``first``, a uint or a smalluint.
_FIRST_AT: Final = _START_END + 3
_UINT: Final = 0x70
_SMALL_UINT: Final = 0x52
# Only the last octet of the id is counted up: behind this one another run begins.
_LAST_OCTET: Final = 255


def take_run(parser: FrameParser, begin: int, disposition: Disposition) -> None:
    """Take the frames behind that say the same of the deliveries that follow, and make ``disposition`` their range.

    Args:
        parser: it stands behind the frame of ``disposition``.
        begin: where that frame begins in ``parser.buf``.
        disposition: of one delivery; its ``last`` is written here.
    """
    buf = parser.buf
    at = parser.pos
    size = at - begin
    if disposition.last is not None or buf[begin + FRAME_HEADER_SIZE : begin + _START_END] != _START:
        return
    code = buf[begin + _FIRST_AT]
    low = _FIRST_AT + (4 if code == _UINT else 1)
    if code != _UINT and code != _SMALL_UINT:
        return
    octet = buf[begin + low]
    head = buf[begin : begin + low]
    tail = buf[begin + low + 1 : at]
    end = len(buf)
    count = 0
    while (
        octet < _LAST_OCTET
        and at + size <= end
        and buf[at + low] == octet + 1
        and buf[at + low + 1 : at + size] == tail
        and buf[at : at + low] == head
    ):
        octet += 1
        count += 1
        at += size
    if count:
        parser.pos = at
        disposition.last = disposition.first + count
