"""The AMQP 1.0 primitive type codec (AMQP 1.0 part 1): what ``encoding`` and ``decoding`` offer, under one name."""

from __future__ import annotations

from oncewire.wire.decoding import MAX_DEPTH, MAX_VALUES, decode, skip
from oncewire.wire.encoding import encode

__all__ = ["MAX_DEPTH", "MAX_VALUES", "decode", "encode", "skip"]
