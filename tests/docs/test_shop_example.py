"""examples/shop: its verdict sees each fault, and the commands of its README.md do what the page says, over kills."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.code_blocks import ROOT, blocks_of
from tests.support.processes import MARK, assert_no_process_left, left_behind
from topology.etcd.server import free_port

SHOP = ROOT / "examples" / "shop"
LIMIT_S = 500.0
BLOCKS = [block.text for block in blocks_of(SHOP / "README.md") if block.run_by]
PLACES = ("orders", "charged", "mails", "shown")


def program(name: str) -> ModuleType:
    """A file of the example, as a module."""
    spec = importlib.util.spec_from_file_location(f"shop_{name}", SHOP / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fill(folder: Path, **rows: Iterable[tuple[int, int]]) -> None:
    """Databases of services, with these orders."""
    tables = {"orders": "web", "charged": "payment", "sent": "mails", "shown": "dashboard"}
    for table, file in tables.items():
        with closing(sqlite3.connect(folder / f"{file}.db")) as database, database:
            database.execute(f"CREATE TABLE {table} (number INTEGER, cents INTEGER)")
            database.executemany(f"INSERT INTO {table} VALUES (?, ?)", rows.get(table, [(1, 100), (2, 200)]))


@pytest.mark.parametrize(
    ("rows", "place", "found"),
    [
        ({"orders": [(1, 100)]}, "orders", (1, 1, 0, 0)),
        ({"charged": [(1, 100)]}, "charged", (1, 1, 0, 0)),
        ({"charged": [(1, 100), (2, 200), (2, 200)]}, "charged", (3, 0, 1, 0)),
        ({"charged": [(1, 100), (2, 300)]}, "charged", (2, 0, 0, 1)),
        ({"sent": [(2, 0)]}, "mails", (1, 1, 0, 0)),
        ({"sent": [(1, 0), (2, 0), (1, 0)]}, "mails", (3, 0, 1, 0)),
        ({"shown": [(1, 100), (2, 200), (3, 100)]}, "shown", (3, 0, 0, 1)),
        ({"shown": [(1, 100), (1, 100)]}, "shown", (2, 1, 1, 0)),
    ],
)
def test_the_verdict_sees_each_fault_and_no_other(
    tmp_path: Path, rows: dict[str, list[tuple[int, int]]], place: str, found: tuple[int, ...]
) -> None:
    verdict = program("verdict")
    fill(tmp_path, **rows)
    tables = verdict.judge(tmp_path, {1: 100, 2: 200})
    one = tables.pop(place)
    assert (one.rows, one.lost, one.twice, one.wrong) == found
    assert not one.is_exact
    assert all(each.is_exact for each in tables.values())


def test_each_service_and_each_router_is_killed_as_often_as_the_others() -> None:
    order = program_with_its_folder("kill").victims(["web", "mail", "r1"], 9, seed=4)
    assert sorted(order) == sorted(["web", "mail", "r1"] * 3)


def program_with_its_folder(name: str) -> ModuleType:
    """Of a program that imports others of the example."""
    sys.path.insert(0, str(SHOP))
    try:
        return program(name)
    finally:
        sys.path.remove(str(SHOP))


def command(line: str, replaced: dict[str, str]) -> list[str]:
    """A command of the page, with this Python and other ports and folders."""
    for there, here in replaced.items():
        line = line.replace(there, here)
    words = shlex.split(line)
    return [sys.executable, *words[1:]] if words[0] == "python" else words


def environment(**more: str) -> dict[str, str]:
    """As readers have it: their Python finds the programs beside the one that they start."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"} | more


def verdict_of(printed: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(printed.splitlines()[-1])
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.needs("fastapi")
def test_the_shop_of_the_page_loses_and_doubles_nothing_over_the_kills_and_leaves_no_process(tmp_path: Path) -> None:
    kill, table = BLOCKS[:2]
    mark = os.urandom(8).hex()
    done = subprocess.run(
        command(kill, {}),
        cwd=ROOT,
        env=environment(**{MARK: mark, "TMPDIR": str(tmp_path)}),
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert table in done.stdout
    found = verdict_of(done.stdout)
    assert (found["accepted"], found["kills"], found["lost"], found["twice"]) == (400, 8, 0, 0)
    killed = {line.split()[2].rstrip(";") for line in done.stdout.splitlines() if line.startswith("SIGKILL")}
    assert killed == {"web", "payment", "mail", "dashboard", "edge", "r1", "r2", "r3"}
    assert_no_process_left(mark)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.needs("fastapi")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_a_run_that_is_broken_off(tmp_path: Path, number: signal.Signals) -> None:
    mark = os.urandom(8).hex()
    given = environment(**{MARK: mark, "TMPDIR": str(tmp_path)})
    process = subprocess.Popen(command(BLOCKS[0], {}), cwd=ROOT, env=given, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert any(line.startswith("SIGKILL") for line in process.stdout)
    process.send_signal(number)
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert_no_process_left(mark)
    if number == signal.SIGINT:
        assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.needs("fastapi", "curl")
def test_the_shop_takes_the_orders_of_the_pages_commands_and_ends_in_good_order(tmp_path: Path) -> None:
    start, use = BLOCKS[2:]
    port = free_port()
    replaced = {"8000": str(port), "8001": str(port + 1), "shop-data": str(tmp_path / "data")}
    mark = os.urandom(8).hex()
    given = environment(**{MARK: mark})
    shop = subprocess.Popen(command(start, replaced), cwd=ROOT, env=given, stdout=subprocess.PIPE, text=True)
    try:
        assert shop.stdout is not None
        assert shop.stdout.readline() == f"orders: http://127.0.0.1:{port}/orders\n"
        load, look, judge = [command(line, replaced) for line in use.splitlines()]
        assert "200 orders accepted" in subprocess.check_output(load, cwd=ROOT, text=True)
        judged = subprocess.run(judge, cwd=ROOT, capture_output=True, text=True, check=False)
        assert judged.returncode == 0, judged.stdout
        shown = json.loads(subprocess.check_output([*look, "-s"], text=True))
        assert shown["orders"] == 200
        metrics = subprocess.check_output([*look[:-1], f"{look[-1]}metrics", "-sL"], text=True)
        assert 'oncewire_client_link_accepted_total{container="dashboard",link="dashboard",' in metrics
        shop.send_signal(signal.SIGINT)
        shop.wait(LIMIT_S)
        assert left_behind(mark) == []
    finally:
        shop.kill()
        shop.communicate()
    assert all(verdict_of(judged.stdout)[place] for place in PLACES)
    logs = "".join(file.read_text() for file in (tmp_path / "data").glob("*.log"))
    assert "Traceback" not in logs
