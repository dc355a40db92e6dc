"""Journals: messages of topics, kept in order in the edge's store, read from any position (rules J-16 to J-28)."""
