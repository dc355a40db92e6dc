"""Starting and stopping a router process: what is wrong is said in three lines, and what is right is announced."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from rich.console import Console

from oncewire.wire import ConnectionClosed, ConnectionLost, SaslClient, SaslOutcome
from tests.router.processes import run_to_end, running_router, start_router
from tests.router.raw_client import RawClient
from tests.support.golden import assert_golden
from topology.inspector.ask_cli import Api
from topology.inspector.follow_cli import Wanted, document_of
from topology.inspector.show_cli import shown

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


@pytest.mark.parametrize("listener", ["listen", "http"])
async def test_a_port_in_use_is_named_with_the_flag_that_changes_it(taken_port: int, listener: str) -> None:
    other = "--http-port=0" if listener == "listen" else "--listen-port=0"
    code, out, err = await run_to_end("--standalone", f"--{listener}-port={taken_port}", other)
    assert (code, out) == (2, "")
    errors = "".join(line + "\n" for line in err.splitlines() if line.startswith(("error", "why", "what")))
    assert_golden(GOLDEN / f"port_in_use_{listener}.txt", errors.replace(str(taken_port), "PORT"))
    assert "Traceback" not in err


async def test_an_address_of_another_machine_is_refused() -> None:
    code, _, err = await run_to_end("--standalone", "--listen-host=192.0.2.1", "--users=a:b")
    assert code == 2
    assert "this machine does not have that address" in err


async def test_without_etcd_the_router_says_where_it_looked_and_what_to_do() -> None:
    code, out, err = await run_to_end(
        "--listen-port=0",
        "--http-port=0",
        "--etcd=http://127.0.0.1:1",
        "--log-level=error",
        "--etcd-start-patience-s=0",
    )
    assert (code, out) == (2, "")
    assert_golden(GOLDEN / "no_etcd.txt", err)


async def test_print_config_prints_a_file_and_stops() -> None:
    code, out, err = await run_to_end("--print-config", "--limits-window=77")
    assert (code, err) == (0, "")
    assert "window = 77" in out


async def test_a_wrong_flag_is_misuse() -> None:
    code, _, err = await run_to_end("--listen-prot=5")
    assert code == 2
    assert "Did you mean --listen-port?" in err or "--listen-port" in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_the_router_with_exit_code_0(number: signal.Signals) -> None:
    router = await start_router("--standalone")
    log = await router.stop(number)
    assert router.process.returncode == 0
    assert "router_stopped" in log


async def test_health_readiness_metrics_and_state_are_served() -> None:
    async with running_router("--standalone", "--id=alpha") as router:
        assert await router.get("/healthz") == (200, {"status": "ok"})
        assert await router.get("/readyz") == (200, {"ready": True, "waiting_for": []})
        client = await RawClient.connect(router.port, "box")
        await client.publisher("orders")
        state = await router.state()
        assert state["router"] == "alpha"
        assert [window["publisher"] for window in state["windows"]] == ["box/pub"]
        async with aiohttp.ClientSession() as session, session.get(router.http + "/metrics") as answer:
            text = await answer.text()
        assert 'oncewire_decisions_total{decision="publisher_attached"} 1.0' in text
        assert 'oncewire_links{kind="publisher"} 1.0' in text
        assert "oncewire_client_connections 1.0" in text
        assert "oncewire_ready 1.0" in text
        assert "process_resident_memory_bytes" in text


async def test_a_router_can_listen_on_the_loopback_address_of_ipv6() -> None:
    async with running_router("--standalone", "--listen-host=::1", "--http-host=::1") as router:
        assert router.url.startswith("amqp://[::1]:")
        assert await router.get("/readyz") == (200, {"ready": True, "waiting_for": []})


async def test_inspect_shows_the_state_of_a_running_router() -> None:
    async with running_router("--standalone", "--id=alpha") as router:
        client = await RawClient.connect(router.port, "box")
        await client.subscriber("orders", "all")
        console = Console(width=200)
        with console.capture() as reported:
            async with Api.at(router.http) as api:
                for what in ("overview", "subscriptions"):
                    console.print(shown(what, await document_of(api, Wanted(what)), 200))
        assert "box/all" in reported.get()
        assert "alpha" in reported.get()


@pytest.mark.slow
async def test_a_password_is_asked_where_anonymous_is_not_allowed() -> None:
    async with running_router("--standalone", "--listen-allow-anonymous=never", "--users=ann:pa,bob:pb") as router:
        client = await RawClient.connect(router.port, sasl=SaslClient("PLAIN", "bob", "pb"))
        await client.publisher("orders")
        for wrong in (SaslClient("PLAIN", "bob", "pa"), SaslClient("PLAIN", "eve", "pa"), SaslClient("ANONYMOUS")):
            client = await RawClient.dial(router.port, sasl=wrong)
            await client.closed()
            assert not [event for event in client.heard if isinstance(event, SaslOutcome) and event.ok]
            assert [event for event in client.heard if isinstance(event, ConnectionLost)]


async def test_an_empty_container_id_is_refused_because_it_would_be_everybodys() -> None:
    async with running_router("--standalone") as router:
        client = RawClient("", SaslClient("ANONYMOUS"), 1 << 20, None)
        client = await RawClient.dial_with(client, router.port)
        closed = await client.wait_for(ConnectionClosed)
        assert closed.error is not None
        assert closed.error.condition == "amqp:invalid-field"


async def test_more_connections_than_the_limit_are_sent_elsewhere() -> None:
    async with running_router("--standalone", "--limits-max-connections=1") as router:
        first = await RawClient.connect(router.port)
        second = await RawClient.dial(router.port)
        closed = await second.wait_for(ConnectionClosed)
        assert closed.error is not None
        assert closed.error.condition == "amqp:connection:forced"
        await first.publisher("orders")
