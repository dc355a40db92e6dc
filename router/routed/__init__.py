"""Routed links: a client's link to a service, forwarded from router to router (protocol rules R-1 to R-9)."""
