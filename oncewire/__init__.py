"""Oncewire: exactly-once publish-subscribe over a network of AMQP 1.0 routers, as applications see it."""
