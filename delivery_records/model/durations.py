"""How long the slow steps of the protocol took, in few buckets: plain ints, read when somebody scrapes."""

from __future__ import annotations

from bisect import bisect_left

BOUNDS_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""From one round trip to etcd to the end of a lease and its grace (11 s), and one bucket for what took longer."""


class Histogram:
    """Counts of durations by upper bound; the last bucket has none."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        """Nothing was measured yet."""
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum_s += seconds

    def add(self, other: Histogram) -> None:
        """Count what another one has counted, too."""
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.sum_s += other.sum_s


class Durations:
    """What one record core has measured; nothing of it is done for each delivery."""

    __slots__ = ("attach_publisher", "attach_subscriber", "barrier", "failover")

    def __init__(self) -> None:
        """Nothing was measured yet."""
        self.attach_publisher = Histogram()
        """From an attach that was read to its write in the watch (A-2, A-3)."""
        self.attach_subscriber = Histogram()
        self.barrier = Histogram()
        """From there until every live router knows the subscription (A-6)."""
        self.failover = Histogram()
        """From a publisher's attach with unsettled deliveries until all of them have come again (I-9)."""

    def add(self, other: Durations) -> None:
        """Count what another core has measured, too."""
        self.attach_publisher.add(other.attach_publisher)
        self.attach_subscriber.add(other.attach_subscriber)
        self.barrier.add(other.barrier)
        self.failover.add(other.failover)
