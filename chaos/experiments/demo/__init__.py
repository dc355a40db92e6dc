"""`oncewire demo`, the experiment that needs nothing else: killed, stopped and restarted routers on real data."""

MIN_MESSAGES = 4_000
"""With fewer the load is too thin for 100 unsettled deliveries through each of three routers."""
