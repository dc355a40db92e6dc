"""What an operator changes while messages flow: paths move, connections end, and nothing is lost or comes twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.network.harness import Load, assert_nothing_wrong, network_under_load
from tests.router.management_calls import PREFIX, call, entity

pytestmark = pytest.mark.slow

CHANGES = 12


async def test_costs_and_connections_change_under_load_and_nothing_is_lost_or_comes_twice(tmp_path: Path) -> None:
    load = Load(publishers={"p1": "r1", "p2": "r2"}, subscribers={"s1": "r1", "s2": "r3"}, messages=6_000, seconds=6.0)
    async with network_under_load(tmp_path, load) as experiment:
        routers = experiment.network.routers
        for number in range(CHANGES):
            await experiment.until_published((number + 1) / (CHANGES + 2))
            one, other = ("r1", "r3") if number % 2 else ("r3", "r1")
            # Each direction by itself, so that there and back are different ways for a while.
            cost = 10 if number % 4 < 2 else 1
            status, row = await call(routers[one].http, "PUT", entity("link", other), {"cost": cost})
            assert status == 200, row
        for router in routers.values():
            _, found = await call(router.http, "GET", f"{PREFIX}/connection")
            for row in found["items"]:
                assert (await call(router.http, "POST", entity("connection", row["key"], "close"), {}))[0] == 200
        verdict = await experiment.verdict()
        assert_nothing_wrong(experiment, verdict)
        assert verdict.total("resumed")  # clients whose connection was closed
        assert events_of(tmp_path, "r1", "paths_changed") > CHANGES / 4
        assert not any(events_of(tmp_path, name, "neighbour_down") for name in routers)


def events_of(folder: Path, router: str, event: str) -> int:
    return (folder / f"{router}.log").read_text().count(f" {event} ")
