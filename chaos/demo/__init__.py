"""`oncewire demo`: a real network on real data, with killed, stopped and restarted routers, and its verdict."""

MIN_MESSAGES = 4_000
"""With fewer the load is too thin for 100 unsettled deliveries through each of three routers."""
