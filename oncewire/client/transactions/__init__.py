"""Exactly-once transactions over topics; docs/gazette.md."""
