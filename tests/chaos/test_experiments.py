"""`oncewire chaos run`: experiments as data, their results, and some of them on real processes through Toxiproxy."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path

import click
import pytest

from chaos.checker import PublisherHistory, SubscriberHistory, Verdict
from chaos.cli import chaos
from chaos.clients.events import Received, Sent
from chaos.experiments.catalogue import TOXICS, catalogue
from chaos.experiments.plans import (
    HELD_S,
    STEADY,
    UNSETTLED_AT_FAULT,
    ClientSignal,
    EtcdFault,
    Expectation,
    Experiment,
    FaultPlan,
    FullDisk,
    Manner,
    Partition,
    RouterSignal,
    ToxicFault,
    Way,
)
from chaos.experiments.plans import Path as ConnectionPath
from chaos.experiments.results import ExperimentResult, kind_of_round, percentiles, summary_of
from chaos.experiments.runner import draw_targets
from chaos.experiments.targets import Target
from chaos.network.faults import Fault
from chaos.network.recovery import Flow, Round, RoundCost, costs_of_rounds, flow_gaps, flows_of, times_behind
from oncewire.cli.run import run
from tests.support.processes import MARK, assert_no_process_left

GOLDEN = Path(__file__).parent / "golden"
END_S = 60.0
PROGRAM = """
import sys, click
from chaos.cli import chaos
from oncewire.cli.run import run
sys.exit(run(["chaos", *sys.argv[1:]], click.Group("oncewire", commands={"chaos": chaos})))
"""
QUICK = ("island", "stop", "full-disk", "etcd-leader", "shared", "shared-leave")
"""One of each sort, with that of tests/chaos/test_record.py; `oncewire chaos run all` runs them all."""


def run_chaos(*arguments: str) -> int:
    return run(["chaos", *arguments], click.Group("oncewire", commands={"chaos": chaos}))


def all_faults(experiments: dict[str, Experiment]) -> list[FaultPlan]:
    return [fault for each in experiments.values() for fault in each.plans]


# --- the experiments --------------------------------------------------------------------------------------------------


def test_every_toxic_is_used_on_connections_of_clients_of_routers_and_with_etcd() -> None:
    used = {(fault.toxic, fault.path) for fault in all_faults(catalogue(1)) if isinstance(fault, ToxicFault)}
    paths = (ConnectionPath.CLIENT_ROUTER, ConnectionPath.ROUTER_ROUTER, ConnectionPath.ROUTER_ETCD)
    assert used >= {(toxic, path) for toxic in TOXICS for path in paths}
    assert len(TOXICS) == 7


def test_connections_of_each_kind_are_cut_silenced_and_held_both_ways_and_one_way() -> None:
    used = {(fault.path, fault.manner, fault.way) for fault in all_faults(catalogue(1)) if isinstance(fault, Partition)}
    for path in (ConnectionPath.CLIENT_ROUTER, ConnectionPath.ROUTER_ROUTER, ConnectionPath.ROUTER_ETCD):
        assert used >= {(path, manner, Way.BOTH) for manner in Manner}
        assert used >= {(path, manner, way) for manner in (Manner.SILENT, Manner.HELD) for way in (Way.IN, Way.OUT)}


def test_no_partition_that_is_only_cut_is_one_way_and_none_is_held_for_long() -> None:
    for seed in range(50):
        for fault in all_faults(catalogue(seed)):
            if isinstance(fault, Partition):
                assert fault.way is Way.BOTH or fault.manner is not Manner.CUT
                assert fault.seconds <= HELD_S or fault.manner is not Manner.HELD


def test_processes_of_all_kinds_are_struck() -> None:
    faults = all_faults(catalogue(1))
    signals = {fault.number for fault in faults if isinstance(fault, RouterSignal)}
    assert signals == {signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM}
    assert any(fault.subscriber_joins for fault in faults if isinstance(fault, RouterSignal))
    assert len({fault.kind for fault in faults if isinstance(fault, EtcdFault)}) == 4
    assert {fault.role for fault in faults if isinstance(fault, FullDisk)} == {"publisher", "subscriber"}
    assert {fault.kind for fault in faults if isinstance(fault, ClientSignal)} == {
        "SIGKILL publisher",
        "SIGKILL subscriber",
        "SIGSTOP subscriber",
        "SIGKILL subscriber, gone for good",
    }


def test_only_members_of_shared_subscriptions_are_gone_for_good_and_some_stay() -> None:
    for experiment in catalogue(1).values():
        gone = [each for each in experiment.plans if isinstance(each, ClientSignal) and not each.returns]
        assert not gone or (experiment.load.share and len(gone) < len(experiment.load.subscribers))


def test_the_random_experiment_is_that_of_its_seed() -> None:
    assert catalogue(7)["random"] == catalogue(7)["random"]
    assert len({str(catalogue(seed)["random"].rounds) for seed in range(20)}) == 20


def test_faults_of_a_random_round_never_take_hold_of_one_place() -> None:
    for seed in range(200):
        for together in catalogue(seed)["random"].rounds:
            places = [place for fault in together for place in fault.places]
            assert len(set(places)) == len(places)


def target(name: str, *connections: str, unsettled: int = UNSETTLED_AT_FAULT) -> Target:
    return Target(name, unsettled, reach=frozenset({name, *connections}))


def test_two_routers_are_killed_at_once_and_only_when_two_have_a_load() -> None:
    routers = [target("r1"), target("r2"), target("r3", unsettled=UNSETTLED_AT_FAULT - 1)]
    for seed in range(20):
        chosen = draw_targets([routers, routers], random.Random(seed))
        assert chosen is not None
        assert {each.name for each in chosen} == {"r1", "r2"}
    assert draw_targets([routers[1:], routers[1:]], random.Random(1)) is None


def test_no_connection_is_disturbed_that_goes_with_a_killed_router_anyway() -> None:
    routers = [target(name, f"clients-{name}") for name in ("r1", "r2")]
    connections = [Target(f"clients-{name}", 100, reach=frozenset({f"clients-{name}"})) for name in ("r1", "r2")]
    for seed in range(20):
        killed, disturbed = draw_targets([routers, connections], random.Random(seed)) or (None, None)
        # A choice that hides a fault is made anew at the next look.
        if killed is not None and disturbed is not None:
            assert disturbed.name != f"clients-{killed.name}"


def test_kinds_notify_apart_what_a_network_can_lead_around_and_what_it_cannot() -> None:
    experiments = catalogue(1)

    def kinds(name: str) -> set[str]:
        experiment = experiments[name]
        return {experiment.kind_of(fault) for together in experiment.rounds for fault in together}

    assert "cut partition router-router" in kinds("partition-routers")
    assert "cut partition router-router, no other way" in kinds("partition-chain")
    assert "silent partition router-etcd" in kinds("partition-etcd-short")
    assert "silent partition router-etcd, beyond the lease" in kinds("partition-etcd")
    assert "held partition router-etcd" in kinds("partition-etcd")
    assert {"SIGKILL, shared", "SIGKILL, shared-leave"} <= kinds("shared") | kinds("shared-leave")
    # A kind is one fault in one situation: but for `random`, no two experiments share one.
    seen = [kind for name in experiments if name != "random" for kind in kinds(name)]
    assert len(seen) == len(set(seen))


# --- results ----------------------------------------------------------------------------------------------------------


def flow(*pairs: tuple[float, float]) -> Flow:
    return Flow("p > s", pairs)


def steadily(begin: float, end: float) -> list[tuple[float, float]]:
    """A message each tenth of a second, which arrives 10 ms later."""
    return [(t / 10, t / 10 + 0.01) for t in range(round(begin * 10), round(end * 10))]


def struck(t: float, repaired: float) -> Round:
    return Round([Fault(t, "r1", "SIGKILL", 100)], repaired)


def test_the_wait_for_one_publishers_messages_is_seen_though_anothers_come() -> None:
    slow = PublisherHistory("p", [], [Sent(1.0, 1, "d"), Sent(2.0, 2, "d")])
    steady = PublisherHistory("q", [], [Sent(t / 10, t, "d") for t in range(10, 60)])
    events = [Received(1.1, "p", 1, "d"), *(Received(t / 10 + 0.01, "q", t, "d") for t in range(10, 60))]
    subscriber = SubscriberHistory("s", frozenset({"p", "q"}), [*events, Received(5.0, "p", 2, "d")])
    flows = flows_of([slow, steady], [subscriber])
    longest = max(flow_gaps(flows), key=lambda gap: gap.seconds)
    assert (longest.client, longest.start, longest.end) == ("p > s", 2.0, 5.0)
    assert [(span.client, span.start, span.end) for span in times_behind(flows)] == [("p > s", 2.1, 5.0)]


def test_recovery_lasts_until_what_piled_up_has_arrived() -> None:
    late = [(1.0, 3.0), (1.5, 3.1), (2.9, 3.2), (3.2, 3.25)]
    [cost] = costs_of_rounds([struck(0.9, 1.4)], [flow(*steadily(0, 0.9), *late, *steadily(3.3, 9))])
    assert cost.recovery_s == pytest.approx(3.2 - 0.9)
    assert cost.repaired_s == pytest.approx(0.5)
    assert cost.wait_s == pytest.approx(2.0)


def test_recovery_is_that_of_the_flow_that_waits_longest() -> None:
    flows = [flow((1.0, 1.5), *steadily(1.6, 9)), flow((1.0, 2.5), *steadily(2.6, 9))]
    assert costs_of_rounds([struck(0.9, 1.0)], flows)[0].recovery_s == pytest.approx(1.6)


def test_a_fault_that_no_flow_notices_has_no_recovery_time() -> None:
    assert costs_of_rounds([struck(1.0, 3.0)], [flow(*steadily(0, 9))])[0].recovery_s == 0.0


def test_trouble_long_after_all_was_whole_again_is_not_the_faults_and_trouble_soon_after_is() -> None:
    for begins, recovery in ((2.5, 2.0), (6.0, 0.0)):
        flows = [flow(*steadily(0, begins), (begins, begins + 0.5), *steadily(begins + 0.6, 9))]
        assert costs_of_rounds([struck(1.0, 2.0)], flows)[0].recovery_s == pytest.approx(recovery)


def test_a_round_costs_nothing_that_belongs_to_the_next_one() -> None:
    flows = [flow(*steadily(0, 2), (2.0, 4.0), *steadily(4.1, 9))]
    first, second = costs_of_rounds([struck(1.0, 1.5), struck(2.0, 2.5)], flows)
    assert first.recovery_s == 0.0
    assert second.recovery_s == pytest.approx(2.0)
    assert first.wait_s < second.wait_s == pytest.approx(2.0)


def test_percentiles_are_values_that_were_measured() -> None:
    assert percentiles([0.1 * n for n in range(1, 21)]) == {"p50": 1000, "p95": 1900, "max": 2000}
    assert percentiles([0.25]) == {"p50": 250, "p95": 250, "max": 250}


def result_of(expectation: Expectation, *costs: RoundCost, fenced: tuple[str, ...] = ()) -> ExperimentResult:
    experiment = Experiment("e", "for a test", [[RouterSignal(signal.SIGKILL)]], expectation)
    verdict = Verdict(publishers=[], subscribers=[], gaps=[])
    return ExperimentResult(experiment, 1, verdict, costs, fenced, [], [], 1.0, "")


KILLED = RoundCost([Fault(1.0, "r1", "SIGKILL", UNSETTLED_AT_FAULT)], 2.0, 0.25, 0.2)


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (result_of(Expectation(resumes=False)), "0 of 1 faults fired"),
        (result_of(Expectation(resumes=True), KILLED), "no link was resumed, so nothing was proven"),
        (
            result_of(Expectation(resumes=False), replace(KILLED, faults=[replace(KILLED.faults[0], unsettled=99)])),
            "SIGKILL at r1 met only 99 unsettled deliveries",
        ),
        (
            result_of(Expectation(resumes=False, fences=True), KILLED),
            "no router gave up its incarnation, and at least one had to",
        ),
        (
            result_of(Expectation(resumes=False, fences=False), KILLED, fenced=("r2",)),
            "routers gave up their incarnations without need: r2",
        ),
    ],
)
def test_an_experiment_that_proves_nothing_or_breaks_an_expectation_fails(
    result: ExperimentResult, reason: str
) -> None:
    assert result.reasons() == [reason]
    assert summary_of([result])["passed"] is False


def test_the_last_line_sums_up_and_counts_rounds_of_several_faults_apart() -> None:
    alone = result_of(Expectation(resumes=False), KILLED)
    together = replace(alone, rounds=[replace(KILLED, faults=[*KILLED.faults, *KILLED.faults], recovery_s=2.0)])
    summary = summary_of([alone, alone, together])
    assert (summary["experiments"], summary["faults"]) == (3, 4)
    assert [summary[count] for count in ("lost", "duplicated", "reordered", "stuck")] == [0, 0, 0, 0]
    assert summary["recovery_ms"] == {
        "SIGKILL": {"p50": 250, "p95": 250, "max": 250},
        "2 x SIGKILL": {"p50": 2000, "p95": 2000, "max": 2000},
    }


def test_rounds_of_the_random_experiment_are_counted_by_how_many_faults_they_have() -> None:
    assert kind_of_round("random", ["SIGKILL"]) == "random, 1 at once"
    assert kind_of_round("random", ["SIGKILL", "latency router-etcd"]) == "random, 2 at once"
    assert kind_of_round("kill", ["SIGKILL"]) == "SIGKILL"


# --- the command ------------------------------------------------------------------------------------------------------


def test_without_a_toxiproxy_the_error_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOXIPROXY_SERVER", "nowhere/toxiproxy-server")
    assert run_chaos("run", "latency", "--json") == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "TOXIPROXY_SERVER=nowhere/toxiproxy-server is no program that can be run" in captured.err
    assert "what to do: run `make tools`" in captured.err


def test_the_list_notifies_each_experiment_and_runs_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_chaos("run", "--list") == 0
    out = capsys.readouterr().out
    for name in catalogue(1):
        assert any(line.startswith(f"{name}  ") for line in out.splitlines()), name


@pytest.mark.slow
@pytest.mark.needs("toxiproxy")
@pytest.mark.parametrize("name", QUICK)
def test_nothing_is_lost_doubled_reordered_or_stuck(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = run_chaos("run", name, "--json", "--keep", str(tmp_path / "kept"))
    out, err = capfd.readouterr()
    assert code == 0, err
    result, summary = (json.loads(line) for line in out.splitlines())
    planned = catalogue(1)[name]
    assert (summary["experiments"], summary["faults"]) == (1, planned.faults)
    assert [summary[count] for count in ("lost", "duplicated", "reordered", "stuck")] == [0, 0, 0, 0]
    faults = [fault for each in result["rounds"] for fault in each["faults"]]
    assert len(faults) == planned.faults
    assert all(fault["unsettled_then"] >= UNSETTLED_AT_FAULT for fault in faults)
    assert result["accepted"] == result["published"] > STEADY.rate
    assert set(summary["recovery_ms"]) == {each["kind"] for each in result["rounds"]}
    assert (tmp_path / "kept" / f"{name}-1" / "timeline.txt").read_text().count("\n") == len(result["timeline"])


@pytest.mark.slow
@pytest.mark.needs("toxiproxy")
def test_a_run_that_is_broken_off_leaves_nothing_behind(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", PROGRAM, "run", "timeout"],
        env={**os.environ, MARK: mark, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "deliveries unsettled through it" in line:
            break
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=END_S)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert_no_process_left(mark)
    assert list(tmp_path.iterdir()) == []
