"""The corpus of what the simulator found: every row says enough, and every seed runs clean today."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.campaign.corpus import CorpusError, Found, parse, read_corpus
from chaos.simulator.schedule import run_seed
from tests.support.effort import partly

ROOT = Path(__file__).parents[2]
SEEDS = [row for row in read_corpus() if row.seed is not None]


@pytest.mark.parametrize("row", partly(SEEDS), ids=lambda row: row.seed)
def test_a_seed_that_once_failed_is_clean_today(row: Found) -> None:
    assert row.seed is not None
    assert run_seed(row.seed, aim=row.aim).violation is None


def test_every_row_leads_to_its_finding_and_its_scenario() -> None:
    findings = (ROOT / "docs" / "counterexamples.md").read_text(encoding="utf-8")
    scenarios = ROOT / "tests" / "delivery_records" / "scenarios"
    for row in read_corpus():
        assert not row.finding or f"| {row.finding} |" in findings, row
        assert not row.scenario or (scenarios / f"{row.scenario}.txt").exists(), row


def test_a_row_that_cannot_be_understood_is_refused() -> None:
    good = 'what = "a"\nfixed_by = "b"\n'
    assert parse("") == []
    assert parse(f"[[found]]\n{good}")[0].what == "a"
    for bad in (good + "sed = 1", good + 'seed = "1"', 'what = "a"', good + "seed = 1", 'what = ""\nfixed_by = "b"'):
        with pytest.raises(CorpusError, match="row 1"):
            parse(f"[[found]]\n{bad}")
