"""What `connect()` takes where a program states nothing; without imports, so that naming `connect` costs nothing."""

CONNECT_S = 30.0
"""How long `connect()` and opening a link try before they raise."""
IDLE_TIME_OUT_S = 2.5
"""A router that is silent for longer counts as unreachable. Half of it is announced (AMQP 2.4.5), so it sends twice as
often. A stalled router costs its clients this long; a false alarm costs them a resumption."""
MAX_FRAME_SIZE = 1 << 20
"""Bytes of the largest frame that a client takes; it bounds the unsettled maps (C-4)."""
MAX_MESSAGE_SIZE = 64 << 20
"""Bytes of the largest message that subscribers take."""
