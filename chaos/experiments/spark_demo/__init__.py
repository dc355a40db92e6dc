"""`oncewire demo-spark`: topic -> Structured Streaming -> topic on real data, with kills everywhere, and its verdict.

The flights are published to one topic; a Spark job reads them through a bridge node, works out each flight's delay and
publishes it to another topic in atomic batches; a subscriber keeps what it gets. Meanwhile the job's driver, the bridge
node and routers are killed. An edge keeps the flights in a journal; when all is over a second query reads them from the
first one on, counts them with a watermark, and is killed in its middle, and the edge with it. The verdict holds what
came against what the rows say.
"""

MIN_MESSAGES = 1_000
"""With fewer the stream is over before three kills found it at work."""
MIN_MESSAGES_PER_KILL = 250
"""Some batches of the job lie between two kills, so that each finds it at work again."""
MIN_KILLS = 4
"""One of each kind."""

FLIGHTS_TOPIC = "flights"
DELAYS_TOPIC = "delays"
PUBLISHER = "flights"
COLLECTOR = "delays"
"""Names of the publisher and of the subscriber at the end."""
JOB = "delays-of-flights"
"""The job's subscription at the bridge node, and its sink."""
COUNTS_TOPIC = "counts"
HISTORY = "counts-of-flights"
"""The sink of the late query."""
