"""The bridge node: a durable journal for each subscription and an outbox for each sink, beside the routers.

The network keeps messages only while they are unsettled. A pipeline that works in batches and restarts from a
checkpoint needs them longer, on both sides: the journal takes what a subscription is owed and accepts it, the outbox
takes what a batch has decided and publishes it. Both are SQLite files; `oncewire bridge node` serves them to other
machines.
"""
