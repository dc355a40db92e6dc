"""Which code each page of evidence ran on, and what has changed since."""
