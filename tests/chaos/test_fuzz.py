"""Fuzzing: no target has findings, each finds a planted fault, runs are repeatable, the page is that of the ledger."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
from click.testing import CliRunner

from chaos.cli import chaos
from chaos.evidence.commits import Commit, read_commits
from chaos.evidence.ledger import read_ledger
from chaos.fuzz.fuzzing import Plan, make_record, make_runs
from chaos.fuzz.ledger import BLOCKS, Found
from chaos.fuzz.linked_routers import LinkedRouters
from chaos.fuzz.page import write_page
from chaos.fuzz.target import Counts, InputTarget, Target
from chaos.fuzz.targets import GOALS

EVIDENCE = Path(__file__).parents[2] / "docs" / "evidence"
PLANTED = {
    "frames": "oncewire.wire.connection:Connection.receive_data",
    "performatives": "chaos.fuzz.frames:decode_message",
    "logins": "chaos.fuzz.logins:PlainServer.step",
    "parameters": "chaos.fuzz.parameters:tag_of",
    "settings": "chaos.fuzz.settings:format_config",
    "etcd-values": "chaos.fuzz.etcd_values:decode_life",
    "router-messages": "chaos.fuzz.router_messages:decode_message",
    "record-core": "delivery_records.records:Records.handle",
    "http": "router.operator.access:Access.caller_of",
    "filters": "chaos.fuzz.filters:compile_text",
    "linked-routers": "router.clients.listener:ClientListener.make",
}
"""What a fault is planted in, of each target: nothing that only compiled code calls, for that calls it directly."""


def target_of(name: str) -> Target:
    """A target, with fewer clients where a run is a whole network."""
    target = GOALS[name].target
    return replace(target, streams=12) if isinstance(target, LinkedRouters) else target


class Planted(Exception):
    """A fault that somebody has made."""


def fails_sometimes(whole: Callable[..., Any]) -> Callable[..., Any]:
    """Fails with every fifth call."""
    calls = 0

    def call(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls % 5 == 0:
            raise Planted
        return whole(*args, **options)

    return call


@pytest.mark.parametrize("name", GOALS)
def test_mutated_input_is_taken_or_refused(name: str) -> None:
    counts, found = make_runs(target_of(name), range(GOALS[name].smoke))
    assert found == []
    assert counts.inputs >= GOALS[name].smoke
    # Neither is everything refused nor everything taken: inputs reach deep, and still break rules.
    if isinstance(GOALS[name].target, InputTarget):
        assert counts.inputs // 20 < counts.refused < counts.inputs


@pytest.mark.parametrize("name", GOALS)
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target = target_of(name)
    owner, _, attribute = PLANTED[name].replace(":", ".").rpartition(".")
    whole = resolve_name(PLANTED[name])
    monkeypatch.setattr(resolve_name(owner), attribute, fails_sometimes(whole))
    _, found = make_runs(target, range(GOALS[name].smoke))
    # Over HTTP it is seen as the status that it brings.
    assert any("Planted" in each.what or "HTTP/1.1 500" in each.what for each in found)


@pytest.mark.slow
def test_a_run_is_always_the_same() -> None:
    for name in GOALS:
        first, second = (make_runs(target_of(name), range(5, 6)) for _ in range(2))
        assert first == second, name


def is_dear(data: bytes) -> bool:
    return bool([data.hex() for _ in range(9_999)])


def test_an_input_whose_cost_is_out_of_proportion_is_a_finding() -> None:
    target = InputTarget("dear", "", (), lambda _rng: [b"10 bytes.."], is_dear)
    _, found = make_runs(target, range(1))
    assert "steps for 10 bytes" in found[0].what


# --- ledger and page --------------------------------------------------------------------------------------------------


def plan_in(folder: Path, inputs: int = 300) -> Plan:
    return Plan(folder / "fuzz.jsonl", {"router-messages": replace(GOALS["router-messages"], inputs=inputs, block=10)})


def test_a_record_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    assert make_record(plan_in(tmp_path))
    assert make_record(plan_in(tmp_path, 500))
    blocks = read_ledger(tmp_path / "fuzz.jsonl", BLOCKS)
    assert [(each.first, each.counts.inputs) for each in blocks] == [(0, 200), (10, 200), (20, 200)]
    assert "**600 inputs, 0 of them through two linked routers" in plan_in(tmp_path).page.read_text()


def test_numbers_of_other_code_are_kept_and_not_added(tmp_path: Path) -> None:
    plan = plan_in(tmp_path)
    assert make_record(plan)
    code = read_ledger(plan.ledger, BLOCKS)[0].code
    plan.ledger.write_text(plan.ledger.read_text().replace(code, "0123456789ab"))
    assert make_record(plan)
    page = plan.page.read_text()
    assert "**400 inputs" in page
    assert "| `router-messages` | `0123456789ab` | 400 | 0 |" in page.split("## Other versions")[1]


def test_a_record_of_newer_code_that_has_only_begun_does_not_take_the_place_of_one_that_is_whole(
    tmp_path: Path,
) -> None:
    plan = plan_in(tmp_path)
    assert make_record(plan)
    whole = read_ledger(plan.ledger, BLOCKS)
    begun = replace(whole[0], code="newer", counts=Counts(20))
    commits = {whole[0].code: Commit("0a1b2c3d4e5f", "2026-11-28")}
    page = write_page([*whole, begun], plan.goals, commits)
    assert "**400 inputs" in page
    assert "the code of commit `0a1b2c3d4e5f` of 2026-11-28." in page
    assert "| `router-messages` | `newer` | 20 | 0 |" in page.split("## Other versions")[1]
    page = write_page([*whole, replace(begun, found=(Found(3, "a fault"),))], plan.goals, commits)
    assert "a fault" in page.split("## Findings")[1]


def test_findings_stand_on_the_page_and_fail_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_in(tmp_path)
    monkeypatch.setattr("chaos.fuzz.router_messages.decode_message", fails_sometimes(bytes))
    assert not make_record(plan)
    assert "Planted" in plan.page.read_text().split("## Findings")[1]


def test_the_page_says_what_the_ledger_says() -> None:
    blocks = read_ledger(EVIDENCE / "fuzz.jsonl", BLOCKS)
    assert blocks
    assert (EVIDENCE / "fuzz.md").read_text() == write_page(blocks, GOALS, read_commits(EVIDENCE))


def test_the_command_writes_the_page_anew_from_the_ledger(tmp_path: Path) -> None:
    for name in ("fuzz.jsonl", "commits.json"):
        shutil.copy(EVIDENCE / name, tmp_path)
    done = CliRunner().invoke(chaos, ["fuzz", "--page-only", "--state", str(tmp_path / "fuzz.jsonl")])
    assert done.exit_code == 0
    assert (tmp_path / "fuzz.md").read_text() == (EVIDENCE / "fuzz.md").read_text()


def test_the_command_prints_how_a_finding_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos.fuzz.router_messages.decode_message", fails_sometimes(bytes))
    done = CliRunner().invoke(chaos, ["fuzz", "router-messages", "--runs", "50", "--first", "7"])
    assert done.exit_code == 1
    assert "repeat it: oncewire chaos fuzz router-messages --first" in done.output
    assert CliRunner().invoke(chaos, ["fuzz", "no-such"]).exit_code == 2


def test_the_command_prints_lines_of_json_for_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def lines(*arguments: str) -> list[dict[str, Any]]:
        done = CliRunner().invoke(chaos, ["fuzz", "--json", *arguments])
        return [json.loads(line) for line in done.output.splitlines()]

    assert {each["target"] for each in lines("--list")} == set(GOALS)
    file = tmp_path / "input"
    file.write_bytes(b"\x01\x00\x00\x00\x02ab")
    (repeated,) = lines("router-messages", "--input", str(file))
    assert (repeated["target"], repeated["findings"]) == ("router-messages", [])
    monkeypatch.setattr("chaos.fuzz.router_messages.decode_message", fails_sometimes(bytes))
    (found,) = lines("router-messages", "--runs", "50", "--first", "7")
    first = found["findings"][0]
    assert first["repeat"] == f"oncewire chaos fuzz router-messages --first {first['run']} --runs 1"


@pytest.mark.slow
@pytest.mark.needs("atheris")
def test_coverage_guided_inputs_are_counted_apart(tmp_path: Path) -> None:
    state = tmp_path / "fuzz.jsonl"
    arguments = ["fuzz", "router-messages", "--guided", "500", "--record", "--corpus", str(tmp_path / "corpus")]
    done = CliRunner().invoke(chaos, [*arguments, "--state", str(state)])
    assert done.exit_code == 0, done.output
    (block,) = read_ledger(state, BLOCKS)
    assert (block.is_guided, block.counts.inputs, block.found) == (True, 500, ())
    assert "| 0 | 0 | - | 500 |" in state.with_suffix(".md").read_text()


def test_an_input_of_the_corpus_is_repeated(tmp_path: Path) -> None:
    file = tmp_path / "input"
    file.write_bytes(b"\x01\x00\x00\x00\x02ab")
    done = CliRunner().invoke(chaos, ["fuzz", "router-messages", "--input", str(file)])
    assert done.exit_code == 0, done.output
    assert CliRunner().invoke(chaos, ["fuzz", "--input", str(file)]).exit_code == 2
