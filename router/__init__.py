"""The router process: an asyncio shell that joins the wire engine, the record core and the topology.

Everything that decides lives in the pure cores; this package owns sockets, clocks, tasks and configuration.
"""
