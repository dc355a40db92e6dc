"""Limits of filters, each with its reason: whoever may attach may write a filter, and whoever may publish a message."""

from __future__ import annotations

MAX_FILTERS = 8
"""Filters of one source: each kind once, with room to spare."""
MAX_SELECTOR_CHARS = 4096
"""Of all selectors of a source together. They are part of a key in etcd and of each attach; JMS applications write some
hundred characters."""
MAX_SELECTOR_TOKENS = 512
"""Of all selectors of a source together. Reading them costs some 5 ms, and evaluating them for a message some 50
microseconds."""
MAX_SELECTOR_DEPTH = 64
"""Nesting of parentheses, NOT and signs: each level is a Python call for each message."""
MAX_LIKES = 16
"""Of all selectors of a source together. A LIKE reads a whole string of a message."""
MAX_STEPS = 8_192
"""What the filters of a subscription may do for one message; beyond it the message does not match. A step is a
character that is compared with `_`, 0.1 microseconds, or 64 that are searched or written as one. 16 LIKE may so read
strings of 500 characters."""
COUNTED_WEIGHT = 256
"""What a filter that takes all of its steps costs, in deliveries: the router looks at the clock the sooner."""
CHARS_A_STEP = 64
"""Characters that are searched, decoded or written in one go, for one step."""
MAX_FIELDS = 16
"""Fields of a filter for properties or application properties, as RabbitMQ has it."""
MAX_FILTER_TEXT = 5_000
"""Characters of all filters of a subscription in their canonical text. In etcd each may take 12 bytes of 65,536."""
MAX_READ_BYTES = 32_768
"""Of header, properties and application-properties together. A message with more matches no filter: it would make its
sender's subscribers pay, and the next hop's headers are never so large."""
MAX_READ_VALUES = 4096
"""Values in one of these sections, which bounds the memory that decoding takes."""
