"""`oncewire demo`: a real network on real data, with killed, stopped and restarted routers, and its verdict."""
