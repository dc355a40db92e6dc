"""`oncewire chaos run journal` and `journal-takeover`: what is listed and refused, and a run of each."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import click
import pytest

from chaos.experiments.catalogue import catalogue
from chaos.experiments.cli import run as command
from chaos.experiments.journal_demo.report import Loss
from chaos.experiments.journals import JOURNALS, ROUNDS
from oncewire.cli.run import run
from tests.store.databases import Servers, SqlDatabase, new_address

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "prove-a-change.md"


def called(*arguments: str) -> int:
    return run(["run", *arguments], click.Group(commands={"run": command}))


def test_experiments_on_journals_are_listed_on_the_page_and_are_none_of_the_network(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert called("--list") == 0
    said = capsys.readouterr().out
    page = PAGE.read_text(encoding="utf-8")
    for name, experiment in JOURNALS.items():
        assert f"{name}  {experiment.summary}"[:60] in said
        assert f"`{name}`" in page
        assert name not in catalogue(0)


def test_a_takeover_without_a_database_is_an_error_before_anything_is_started(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert called("journal-takeover") == 2
    assert "--store postgresql://" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["journal", pytest.param("journal-takeover", marks=pytest.mark.needs("postgresql"))])
def test_nothing_is_lost_doubled_or_reordered_and_the_json_line_says_so(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [name, "--json", "--keep", str(tmp_path / "kept")]
    with ExitStack() as stack:
        if name == "journal-takeover":
            words += ["--store", SqlDatabase("postgresql", new_address("postgresql", tmp_path, Servers(stack))).url]
        code = called(*words)
    (line,) = capsys.readouterr().out.splitlines()
    result = json.loads(line)
    assert (code, result["reasons"]) == (0, [])
    assert (result["lost"], result["duplicated"], result["reordered"], result["unexpected"]) == (0, 0, 0, 0)
    assert result["published"] == result["stored"]
    kinds = [each.value for each in Loss] if JOURNALS[name].is_takeover else ["router", "edge"]
    assert [result["kills"][kind] for kind in kinds] == [ROUNDS] * len(kinds)
    assert (tmp_path / "kept" / f"{name}-1" / "timeline.txt").read_text()
