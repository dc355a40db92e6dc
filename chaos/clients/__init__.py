"""Client processes under experiment: their plans, what they send, and the journals of what they saw."""
