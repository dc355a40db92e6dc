"""Limits of one client's connection."""

from __future__ import annotations

OUTPUT_HIGH_BYTES = 1 << 20
"""More than this unwritten: the client is behind, and new deliveries wait in the record core."""
OUTPUT_LIMIT_BYTES = 64 << 20
"""More than this unwritten: the client makes us answer and does not read; nothing more is read from it either."""
CLOSE_TIMEOUT_S = 2.0
"""After our close frame, before the transport is closed without the client's answer."""

MAX_CONTAINER_ID_BYTES = 1024
"""It is part of the identity of every link (2.6.1) and stands in etcd; an empty one would be everybody's."""
MAX_WEIGHED = 16
"""Publishers of a connection whose subscriptions are counted in one step of a turn: some 10 ms for 3,600 of each."""
