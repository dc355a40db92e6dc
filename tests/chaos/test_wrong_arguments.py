"""Arguments that no command of the fault side takes: three lines, nothing on stdout, exit code 2."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from chaos.cli import chaos, demo
from chaos.experiments.spark_demo.cli import demo_spark
from oncewire.cli.run import run
from tests.support.golden import assert_golden

GOLDEN = Path(__file__).parent / "golden"
COMMANDS = click.Group("oncewire", commands={"chaos": chaos, "demo": demo, "demo-spark": demo_spark})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("demo-file-absent", "demo --file no-such-file.csv"),
        ("demo-too-few-messages", "demo --messages 100"),
        ("demo-too-few-routers", "demo --routers 2"),
        ("demo-file-too-short", "demo --file short.txt"),
        ("demo-folder-in-use", "demo --keep ."),
        ("demo-spark-too-few-messages", "demo-spark --messages 100"),
        ("demo-spark-too-many-kills", "demo-spark --messages 1000 --kills 5"),
        ("demo-spark-too-few-kills", "demo-spark --kills 1"),
        ("demo-spark-folder-in-use", "demo-spark --keep ."),
        ("run-no-name", "chaos run"),
        ("run-unknown", "chaos run latenzy"),
        ("run-folder-in-use", "chaos run latency --keep ."),
        ("run-negative-seed", "chaos run latency --seed -1"),
        ("simulate-no-seeds", "chaos simulate --seeds 0"),
        ("simulate-negative-seed", "chaos simulate --first-seed -1"),
        ("simulate-no-jobs", "chaos simulate --jobs 0"),
        ("simulate-story-of-many", "chaos simulate --story"),
        ("simulate-shorten-alone", "chaos simulate --seeds 1 --shorten"),
        ("simulate-shorten-clean", "chaos simulate --seeds 1 --story --shorten"),
        ("mutants-unknown", "chaos mutants C11-sync-when-movd"),
        ("mutants-no-time", "chaos mutants --seconds 0"),
        ("chaos-unknown", "chaos xyzzy"),
        ("campaign-two-times", "chaos campaign --hours 1 --minutes 1"),
        ("campaign-no-ledger", "chaos campaign --state notes.txt"),
        ("campaign-no-folder", "chaos campaign --state nowhere/simulation.jsonl"),
        ("campaign-broken-ledger", "chaos campaign --state broken.jsonl"),
        ("campaign-page-of-broken-ledger", "chaos campaign --page-only --state broken.jsonl"),
    ],
)
def test_wrong_arguments_say_what_why_and_what_to_do(
    name: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("short.txt").write_text("one\ntwo\n")
    Path("broken.jsonl").write_text('{"first_seed": 0}\n')
    assert run(words.split(), COMMANDS) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert_golden(GOLDEN / f"{name}.txt", captured.err.replace(str(tmp_path), "FOLDER"))
