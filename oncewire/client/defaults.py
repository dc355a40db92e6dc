"""What a program gets where it states nothing; without imports, so that naming `connect` costs nothing."""

CONNECT_S = 30.0
"""How long `connect()` and opening a link try before they raise."""
IDLE_TIME_OUT_S = 2.5
"""A router that is silent for longer counts as unreachable. Half of it is announced (AMQP 2.4.5), so it sends twice as
often. A stalled router costs its clients this long; a false alarm costs them a resumption."""
MAX_FRAME_SIZE = 1 << 20
"""Bytes of the largest frame that a client takes; it bounds the unsettled maps (C-4)."""
MAX_MESSAGE_SIZE = 64 << 20
"""Bytes of the largest message that subscribers take."""
SUBSCRIPTION_TIMEOUT_S = 60
"""T_sub: how long the network keeps a disconnected subscription. Publishers of its topic wait for it that long."""
WINDOW = 1024
"""Messages a publisher may have unsettled or waiting; the router's own window (C-1) is as large."""
WINDOW_BYTES = 64 << 20
"""Bytes of them; one message may be larger when it stands alone."""
PREFETCH = 256
"""Unprocessed deliveries a subscriber lets come at once: covers a round trip, bounds the application's memory."""
REJECTED = "oncewire:rejected-by-application"
"""Error condition of a rejection when the application names none."""
