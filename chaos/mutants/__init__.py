"""Mutants: the record core with one rule edited out in memory. The shipped core knows nothing of them."""
