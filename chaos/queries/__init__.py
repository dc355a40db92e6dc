"""Bridge nodes and Spark's queries under seeded faults: the shipped journals, sources and planners, without a JVM."""
