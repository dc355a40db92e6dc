"""Seeded fuzzing of whatever reads what others wrote: each input comes from a target and a number."""
