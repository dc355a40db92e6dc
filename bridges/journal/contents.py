"""Journals as a feature of the edge's store."""

from __future__ import annotations

from typing import Final

from bridges.journal.schema import MIGRATION, OWNERS_MIGRATION
from oncewire.store.migrations import Feature

JOURNALS: Final = Feature("journals", (MIGRATION, OWNERS_MIGRATION))
