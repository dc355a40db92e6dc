"""AMQP 1.0 engine without input or output: bytes in, events out; commands in, bytes out."""
