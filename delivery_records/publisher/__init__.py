"""From a publisher's transfer to its outcome: the window, who owes what, and the policies of its topic (rules I, C)."""
