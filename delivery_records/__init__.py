"""The exactly-once protocol of docs/protocol.md as pure state machines.

`Records.handle(inputs, now)` takes what one router saw in one turn and returns the effects its shell must carry out.
Nothing here imports asyncio, time, random or sockets: the router, the simulator and the tests run the same code.
"""

from delivery_records.records import Records

__all__ = ["Records"]
