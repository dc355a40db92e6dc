"""`oncewire bench` measures a real network, and `oncewire doctor` names what is wrong, with what to do."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from oncewire.client.bench import percentiles_ms, rate
from router.authentication.revocation_core import validity
from router.commands.doctor_checks import (
    IS_ROUTER,
    State,
    check_certificates,
    check_descriptors,
    check_ports,
    etcd_version,
    holder_of,
)
from router.settings.config_loading import load
from tests.router.processes import running_router
from tests.support.certificates import TestAuthority
from tests.support.commands import run
from tests.support.terminal import ONCEWIRE
from topology.etcd.server import EtcdServer, free_port

COMMANDS = "bench=oncewire.client.bench_cli:bench,doctor=router.commands.doctor:doctor"
CLOSED = "http://127.0.0.1:1"


oncewire = partial(run, COMMANDS, program=ONCEWIRE)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with closing(socket.socket()) as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield holder


def by_check(document: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    return {each["check"]: each for each in document["checks"]}


async def test_bench_counts_every_message_and_measures_each() -> None:
    async with running_router("--standalone") as router:
        flags = ("--messages", "101", "--publishers", "2", "--subscribers", "3", "--size", "64", "--url", router.url)
        code, out, err = await oncewire("bench", *flags, "--json")
        assert (code, err) == (0, "")
        found = json.loads(out)
        assert (found["published"], found["accepted"], found["received"]) == (101, 101, 303)
        for latency in (found["acceptance_ms"], found["arrival_ms"]):
            assert 0 < latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["max"]
        code, out, _ = await oncewire("bench", "orders", "--messages", "20", "--url", router.url)
        assert code == 0
        assert [line.split()[:2] for line in out.splitlines()[2:]] == [["accepted", "20"], ["arrived", "20"]]
        code, out, _ = await oncewire("bench", "--settled", "--messages", "20", "--url", router.url, "--json")
        assert code == 0
        assert json.loads(out)["received"] <= 20
        assert (await router.state())["subscriptions"] == []  # nothing is left behind


def test_percentiles_and_rates_of_few_and_of_none() -> None:
    assert percentiles_ms([]) is None
    assert percentiles_ms([0.004, 0.001, 0.002, 0.003]) == {"p50": 3.0, "p90": 4.0, "p99": 4.0, "max": 4.0}
    assert (rate(10, 2.0), rate(10, 0.0)) == (5, 0)


async def test_doctor_finds_nothing_wrong_where_etcd_and_a_router_run() -> None:
    async with EtcdServer() as etcd, running_router(f"--etcd={etcd.urls[0]}") as router:
        flags = ("--etcd", etcd.urls[0], "--listen-port", str(router.port), "--http-port", str(free_port()))
        code, out, _ = await oncewire("doctor", *flags, "--json")
        assert code == 0, out
        found = by_check(json.loads(out))
        assert found["etcd"]["state"] == etcd_version(etcd.binary.version, "").state.value
        assert found["routers"]["found"].startswith("1 router live, all of this version")
        assert found["clock"]["state"] == "ok"
        assert found[f"port {router.port}"]["found"].endswith(f"process {router.process.pid} listens there, a router")


@pytest.mark.parametrize(
    ("version", "state", "says"),
    [
        ("3.3.27", State.FAILED, "is too old"),
        ("3.4.38", State.WARNING, "not tested"),
        ("3.5.1", State.WARNING, "#13766"),
        ("3.5.4", State.WARNING, "#14370"),
        ("3.5.12", State.WARNING, "#17529"),
        ("3.5.13", State.OK, "3.5.13 at URL"),
        ("3.6.0-rc.5", State.OK, "3.6.0-rc.5 at URL"),
        ("3.7.3", State.OK, "3.7.3 at URL"),
    ],
)
def test_doctor_warns_of_an_etcd_with_known_faults(version: str, state: State, says: str) -> None:
    found = etcd_version(version, "URL")
    assert found.state is state
    assert says in found.text
    assert bool(found.fix) is (state is not State.OK)
    assert ("for trying out" in found.text) is (state is State.WARNING)


async def test_doctor_says_what_to_do_for_each_fault_and_exits_with_1(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    code, out, _ = await oncewire("doctor", "--etcd", CLOSED, "--listen-port", str(port), "--http-port", "0")
    assert code == 1
    assert "http://127.0.0.1:1 does not answer: Connection refused" in out
    assert "what to do: start it, or correct etcd.endpoints" in out
    assert "what to do: stop it, or set listen.port to another port" in out
    assert out.splitlines()[-1].endswith("2 failed, 0 warnings")


@pytest.mark.parametrize(
    ("program", "is_router"),
    [
        ("/srv/oncewire/.venv/bin/python -m pytest", False),
        ("python -P -m router --standalone", True),
        ("/usr/bin/python3 /usr/bin/oncewire router --workers 2", True),
        ("oncewire local", False),
    ],
)
def test_a_router_is_known_by_its_command_and_not_by_its_folder(program: str, is_router: bool) -> None:
    assert bool(IS_ROUTER.search(program)) is is_router


def test_the_program_that_holds_a_port_is_named(listener: socket.socket) -> None:
    holder = holder_of(listener.getsockname()[1])
    assert holder is not None
    assert "python" in holder[1]
    assert holder_of(free_port()) is None
    config = load(None, {"listen_port": str(listener.getsockname()[1]), "http_port": str(free_port())}, {}).config
    taken, free = check_ports(config)
    assert (taken.state, free.state) == (State.FAILED, State.OK)


def test_certificates_that_have_ended_or_do_not_fit_are_found(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "pki")
    good, ended = authority.issue("good"), authority.issue("ended", expired=True)

    def states(certificate: Path, key: Path) -> list[State]:
        flags = {"tls_cert_file": str(certificate), "tls_key_file": str(key), "tls_ca_file": str(authority.file)}
        return [each.state for each in check_certificates(load(None, flags, {}).config)]

    assert states(good.certificate, good.key) == [State.OK, State.OK]
    assert states(ended.certificate, ended.key) == [State.FAILED, State.OK]
    assert states(good.certificate, ended.key) == [State.FAILED, State.OK, State.OK]
    assert states(tmp_path / "pki" / "ended-key.pem", ended.key)[0] is State.FAILED


def test_the_time_of_a_certificate_is_read_as_openssl_reads_it(tmp_path: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    for file in (TestAuthority(tmp_path).issue("one").certificate, tmp_path / "ca.pem"):
        found = x509.load_pem_x509_certificate(file.read_bytes())
        as_text = [time.strftime("%Y%m%d%H%M%SZ") for time in (found.not_valid_before_utc, found.not_valid_after_utc)]
        assert list(validity(found.public_bytes(Encoding.DER))) == as_text
        assert datetime.strptime(as_text[1], "%Y%m%d%H%M%SZ").replace(tzinfo=UTC) == found.not_valid_after_utc


def test_too_few_descriptors_are_a_warning_with_the_number_that_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _which: (1024, 1024))
    (finding,) = check_descriptors(load(None, {"max_connections": "10000"}, {}).config)
    assert finding.state is State.WARNING
    assert "ulimit -n" in finding.fix
