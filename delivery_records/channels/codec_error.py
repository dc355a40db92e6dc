"""The error of bytes that are no frame between routers."""

from __future__ import annotations


class ChannelCodecError(ValueError):
    """Bytes that are not a frame of this protocol version; the message says what is wrong with them.

    The sender is at fault: drop its connection, the channels over it start again (T-4).
    """
