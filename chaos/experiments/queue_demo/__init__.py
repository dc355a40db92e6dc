"""`oncewire demo-queue`: topic -> queues -> topic on real data, with kills everywhere, and its verdict.

The flights are published to a topic. A feed pushes them into the first of three queues; workers take them through all
three, with failures, a delay and dead letters; the last step publishes each delay to another topic; a consumer with a
store reads it. Meanwhile workers, feed, outbox publisher, consumer and routers are killed. The verdict compares what
was read, what the workers did and the dead letters with the rows.
"""

MIN_MESSAGES = 500
"""With fewer the stream is over before the kills found it at work."""
MIN_KILLS = 5
"""One of each kind."""

FLIGHTS_TOPIC = "flights"
DELAYS_TOPIC = "delays"
PARSE = "parse"
WAIT = "wait"
REPORT = "report"
"""The three queues, in order."""
