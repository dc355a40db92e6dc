"""The edge: one process that runs queues, feeds, outboxes and journals over one store, side by side (docs/edges.md)."""
