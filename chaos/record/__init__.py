"""The record of faults on real processes: `oncewire chaos record`."""

FAULTS = 500
"""How many a record has."""
