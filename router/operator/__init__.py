"""What operators see and change: HTTP API, $management, metrics, spans."""
