"""A network under experiment: its routers' states, what strikes it, and what that costs."""
