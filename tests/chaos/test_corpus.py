"""The corpus of what the simulator found: every row says enough, and every seed runs clean today."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.campaign.corpus import CorpusError, parse, read_corpus
from chaos.simulator.schedule import run_seed

ROOT = Path(__file__).parents[2]


def test_every_seed_that_once_failed_is_clean_today() -> None:
    seeds = {row.seed: row.aim for row in read_corpus() if row.seed is not None}
    found = {
        seed: violation for seed, aim in seeds.items() if (violation := run_seed(seed, aim=aim).violation)
    }
    assert found == {}


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
    for bad in (
        good + "sed = 1",
        good + 'seed = "1"',
        'what = "a"',
        good + "seed = 1",
        'what = ""\nfixed_by = "b"',
    ):
        with pytest.raises(CorpusError, match="row 1"):
            parse(f"[[found]]\n{bad}")
