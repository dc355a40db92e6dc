"""One settings system: file, flags, environment, printed settings and reference tables are read from one schema."""
