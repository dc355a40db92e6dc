"""The one schema of what operators see and change: entities, their attributes and operations.

HTTP API, AMQP `$management`, `oncewire inspect` and `manage`, the inspector's page, metrics and the tables of
docs/management.md and docs/inspector-api.md read it. It imports nothing of the router: both sides of the API can.
"""
