"""The asyncio shell around the AMQP engine: one for clients, for the router's listener and for links between routers.

- `engine_protocol`: bytes in, events to a subclass, bytes out at the end of the turn; timers, faults, the end.
- `paced_protocol`: the same for a peer that must not hold up others: one read in a turn of the loop, bounded output.
- `turn`: turns of the event loop, and who waits for one.
- `connecting`: opens a connection; `hosts`: whether it stays on this machine.
"""
