"""What an edge can run: a kind of part is one line here."""

from __future__ import annotations

from collections.abc import Mapping

from bridges.edge.of_journals import JOURNAL
from bridges.edge.of_queues import QUEUE
from bridges.edge.of_spark import SPARK
from bridges.edge.of_topics import FEED, PUBLISH
from bridges.edge.part import Kind

KINDS: Mapping[str, Kind] = {each.table: each for each in (QUEUE, JOURNAL, FEED, PUBLISH, SPARK)}
"""By the names of their tables."""
