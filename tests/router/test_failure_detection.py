"""Silent, slow and refusing neighbours between real routers: who is given up, who is kept, and what is said of it."""

from __future__ import annotations

import asyncio
import gc
import operator
import os
import signal
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from oncewire.cli.errors import CliError
from router.commands.local_network import LocalNetwork
from router.process.event_loop_lag import FULL_S, MIN_ENDED, MOST_YOUNG, REST, Census, FullCollections, LoopWatch
from router.process.logs import EventLog, RouterEvent
from router.settings.config_loading import load
from tests.router.processes import running_router
from tests.router.raw_client import until
from topology.etcd.server import free_port

QUICK = {"inter_router.heartbeat_s": "0.1", "inter_router.silence_s": "0.4"}


def lines_of(log: Path, event: str) -> list[str]:
    """The lines of a router's log with this event."""
    return [line for line in log.read_text().splitlines() if f" {event} " in line]


# --- settings


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"inter_router_silence_s": "1"}, "set inter_router.silence_s to 1.5 or more"),
        ({"inter_router_heartbeat_s": "1"}, "lower inter_router.heartbeat_s"),
        ({"inter_router_silence_s": "10"}, "raise etcd.lease_ttl_s"),
        ({"lease_ttl_s": "3", "inter_router_silence_s": "3"}, "lower inter_router.silence_s"),
    ],
)
def test_a_silence_must_hold_three_heartbeats_and_end_before_the_lease(given: dict[str, str], named: str) -> None:
    with pytest.raises(CliError) as refused:
        load(None, given, {})
    what, why, fix = refused.value.what, refused.value.why, refused.value.fix
    assert "inter_router.silence_s" in what
    assert why
    assert named in fix
    assert refused.value.exit_code == 2


def test_the_shortest_lease_goes_with_the_silence_that_is_the_default() -> None:
    assert load(None, {"lease_ttl_s": "3"}, {}).config.inter_router_silence_s < 3


# --- neighbours


@pytest.mark.slow
async def test_a_neighbour_that_beats_more_seldom_by_its_settings_is_kept(tmp_path: Path) -> None:
    """What the other one learns of our silence when the link opens (AMQP 2.4.5) makes it speak often enough."""
    network = LocalNetwork(2, log_folder=tmp_path, log_level="info", settings={"etcd.lease_ttl_s": "300"})
    network.routers["r1"].settings |= QUICK
    network.routers["r2"].settings |= {"inter_router.heartbeat_s": "50", "inter_router.silence_s": "150"}
    async with network:
        log = tmp_path / "r1.log"

        async def bytes_of_r2() -> int:
            return await metric(network.routers["r1"].http, 'neighbour_bytes_total{direction="in",neighbour="r2"}')

        async def ups() -> int:
            return len(lines_of(log, "neighbour_up"))

        await until(ups, lambda found: found == 1)  # before, there is no such metric
        before = await bytes_of_r2()
        # Twenty empty frames of 8 bytes: several silences long.
        await until(bytes_of_r2, lambda found: found >= before + 20 * 8)
        assert len(lines_of(log, "neighbour_up")) == 1
        assert not lines_of(log, "neighbour_down")


async def test_a_stopped_neighbour_is_given_up_and_linked_again_when_it_goes_on(tmp_path: Path) -> None:
    async with LocalNetwork(2, log_folder=tmp_path, log_level="info", settings=QUICK) as network:
        log = tmp_path / "r1.log"

        async def ups_and_downs() -> tuple[int, int]:
            return len(lines_of(log, "neighbour_up")), len(lines_of(log, "neighbour_down"))

        network.sigstop("r2")
        await until(ups_and_downs, lambda found: found == (1, 1))
        assert "silent" in lines_of(log, "neighbour_down")[0]
        network.sigcont("r2")
        await until(ups_and_downs, lambda found: found == (2, 1))
        assert len(lines_of(log, "incarnation_started")) == 1


@asynccontextmanager
async def mute_listener() -> AsyncIterator[tuple[int, list[int]]]:
    """Takes connections and never says a word: its port, and an entry for each connection it took."""
    taken: list[int] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.append(len(taken))
        await reader.read()
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], taken


async def test_a_neighbour_that_never_answers_is_dialed_on_and_its_reason_is_reported_once(tmp_path: Path) -> None:
    async with mute_listener() as (port, taken):
        settings = QUICK | {
            "inter_router.mesh": "configured",
            "inter_router.connectors": f"127.0.0.1:{port}",
            "inter_router.redial_s": "0.1",
        }
        async with LocalNetwork(1, log_folder=tmp_path, log_level="info", settings=settings):

            async def attempts() -> int:
                return len(taken)

            await until(attempts, lambda found: found >= 4)
            refused = lines_of(tmp_path / "r1.log", "neighbour_refused")
            assert len(refused) == 1
            assert "no answer to the handshake" in refused[0]


async def test_a_neighbour_that_comes_late_is_found_within_the_longest_pause(tmp_path: Path) -> None:
    port = free_port()
    network = LocalNetwork(2, log_folder=tmp_path, log_level="info", settings=QUICK)
    network.routers["r1"].settings |= {
        "inter_router.mesh": "configured",
        "inter_router.connectors": f"127.0.0.1:{port}",
        "inter_router.redial_s": "0.2",
    }
    network.routers["r2"].settings |= {"inter_router.mesh": "configured", "inter_router.port": str(port)}
    async with network:
        log = tmp_path / "r1.log"

        async def ups() -> int:
            return len(lines_of(log, "neighbour_up"))

        await until(ups, lambda found: found == 1)
        for number in (2, 3):
            await network.kill("r2")
            await network.restart("r2", wait=False)
            await until(ups, partial(operator.eq, number))


# --- our own stalls


class _Log(EventLog):
    def __init__(self) -> None:
        super().__init__("r1")
        self.reported: list[tuple[RouterEvent, dict[str, object]]] = []

    def event(self, event: RouterEvent, **fields: object) -> None:
        self.reported.append((event, fields))


async def test_a_stall_longer_than_the_neighbours_timeout_is_logged_and_counted() -> None:
    log = _Log()
    watch = LoopWatch(log, borne_s=0.6, count=lambda: Census(0, 0))
    watch.start()
    try:
        await stall(0.45)
        reported = [fields for event, fields in log.reported if event is RouterEvent.LOOP_STALLED]
        assert reported[0]["neighbours_bear"] == 0.6
        assert watch.stalls == len(reported)
        assert watch.take_worst() >= 0.3
        assert watch.take_worst() == 0.0
    finally:
        watch.stop()


class _Cycle:
    def __init__(self) -> None:
        self.me = self


@pytest.mark.parametrize(("ended", "is_gone"), [(MIN_ENDED, True), (MIN_ENDED - 1, False)])
async def test_what_ended_clients_leave_behind_is_collected_when_it_is_much(ended: int, is_gone: bool) -> None:
    old = _Cycle()
    gc.collect()  # it is no young object any more
    watch = LoopWatch(_Log(), borne_s=60.0, count=lambda: Census(ended, 10))
    thresholds, frozen = gc.get_threshold(), gc.get_freeze_count()
    watch.start()
    gc.unfreeze()
    try:
        left = weakref.ref(old)
        del old
        await asyncio.sleep(1.3)  # a young collection, or a full one, comes once a second
        assert (left() is None) is is_gone
    finally:
        watch.stop()
    assert gc.get_threshold() == thresholds
    assert not frozen


async def test_what_a_burst_makes_is_collected_in_small_pieces() -> None:
    watch = LoopWatch(_Log(), borne_s=60.0, count=lambda: Census(0, 0))
    watch.start()
    try:
        kept = [[number] for number in range(20 * MOST_YOUNG)]  # nothing else has a turn meanwhile
        young = [len(gc.get_objects(generation)) for generation in (0, 1)]
    finally:
        watch.stop()
    assert len(kept) == 20 * MOST_YOUNG
    assert young[0] <= MOST_YOUNG + 100
    assert young[1] <= 3 * MOST_YOUNG


def test_full_collections_take_half_a_hundredth_of_the_time() -> None:
    full, gone = FullCollections(0.0), Census(MIN_ENDED, 10)
    assert full.is_due(gone, 1.0)
    full.on_done(gone, 1.0, 1.2)
    again = Census(100 * MIN_ENDED, 10)
    assert not full.is_due(again, 2.0), "it rests for forty seconds, whatever they left behind"
    assert full.is_due(again, 1.2 + REST * 0.2)


def test_everything_is_collected_once_in_a_while() -> None:
    full, nobody = FullCollections(0.0), Census(0, 10)
    assert not full.is_due(nobody, FULL_S - 1)
    assert full.is_due(nobody, FULL_S)
    full.on_done(nobody, FULL_S, FULL_S + 0.1)
    assert not full.is_due(nobody, FULL_S + 100)
    assert full.is_due(nobody, 2 * FULL_S + 0.1)


async def stall(seconds: float) -> None:
    """Hold the loop up right after a measurement, and let it measure that."""
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + seconds
    while loop.time() < ends_at:
        pass
    await asyncio.sleep(0.05)


async def test_a_stopped_router_knows_afterwards_how_long_it_stood_still() -> None:
    async with running_router("--standalone") as router:
        await metric(router.http, "loop_stalls_total")
        os.kill(router.process.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(1.0)  # the fault itself: so long it is stopped
        finally:
            os.kill(router.process.pid, signal.SIGCONT)

        async def stalls() -> int:
            return await metric(router.http, "loop_stalls_total")

        await until(stalls, lambda found: found >= 1)


async def metric(http: str, name: str) -> int:
    """The value of one metric now."""
    async with aiohttp.ClientSession() as session, session.get(f"{http}/metrics") as answer:
        text = await answer.text()
    await asyncio.sleep(0)
    found = [line for line in text.splitlines() if line.startswith(f"oncewire_{name} ")]
    assert len(found) == 1, (name, text)
    return int(float(found[0].rpartition(" ")[2]))
