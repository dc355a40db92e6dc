"""TLS and logins at the doors of a real node process, for pipelines, operators and the command line."""

from __future__ import annotations

import base64
import json
import pickle
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest
import trustme
from click.testing import CliRunner

from bridges.cli import bridge
from bridges.doors.tls import NO_FILES, TlsFiles
from bridges.node.client import RemoteNode, read_secret
from bridges.node.errors import BadRequest, NodeError, NodeUnavailable, NotAuthenticated
from bridges.spark.options import source_options
from oncewire.cli.users_file import write
from oncewire.wire.scram import MIN_ITERATIONS, SCRAM_HASHES, derive_keys
from tests.client.shell_helpers import LONG
from tests.node.node_process import START_S, NodeProcess, running_node

NOWHERE = "amqp://127.0.0.1:1"
PASSWORD = "a long password"


@dataclass(frozen=True, slots=True)
class Pki:
    """Files of an authority, of a node and of a client of it; and another authority's."""

    ca: Path
    node: Path
    client: Path
    stranger: Path


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    folder = tmp_path_factory.mktemp("pki")
    authority = trustme.CA()
    found = Pki(*(folder / name for name in ("ca.pem", "node.pem", "client.pem", "stranger.pem")))
    authority.cert_pem.write_to_path(found.ca)
    authority.issue_cert("127.0.0.1", "localhost").private_key_and_cert_chain_pem.write_to_path(found.node)
    authority.issue_cert("client@localhost").private_key_and_cert_chain_pem.write_to_path(found.client)
    trustme.CA().cert_pem.write_to_path(found.stranger)
    return found


def toml(**settings: object) -> str:
    return "".join(f"{key.replace('__', '.')} = {json.dumps(value)}\n" for key, value in settings.items())


@contextmanager
def node_at(tmp_path: Path, **settings: object) -> Iterator[NodeProcess]:
    given = {key: str(value) if isinstance(value, Path) else value for key, value in settings.items()}
    with running_node(tmp_path / "node", [NOWHERE], toml(**given)) as process:
        yield process


def client_of(
    process: NodeProcess, scheme: str = "tls", tls: TlsFiles = NO_FILES, patience_s: float = LONG
) -> RemoteNode:
    address = f"{scheme}://{process.announced['tcp'].partition('://')[2]}"
    return RemoteNode(address, read_secret(Path(process.announced["secret"])), tls=tls, patience_s=patience_s)


def line(user: str) -> str:
    """As `line_of` writes it, with as few rounds as may be: five guesses must fit into a minute of a busy machine."""
    scram = SCRAM_HASHES[0]
    keys = derive_keys(scram, PASSWORD, b"0123456789abcdef", MIN_ITERATIONS)
    salt, stored, server = (base64.b64encode(each).decode() for each in (keys.salt, keys.stored_key, keys.server_key))
    return f"{user} {scram.mechanism}${keys.iterations}:{salt}${stored}:{server}"


def login(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def get(process: NodeProcess, path: str, context: ssl.SSLContext | None = None, **headers: str) -> tuple[int, Any]:
    request = Request(f"{process.announced['http']}{path}", headers=headers)
    try:
        with urlopen(request, timeout=LONG, context=context) as reply:
            text = reply.read().decode()
            return reply.status, json.loads(text) if text.startswith("{") else text
    except HTTPError as error:
        return error.code, json.loads(error.read())


def test_a_pipeline_reaches_its_node_with_tls_also_when_its_client_was_pickled(pki: Pki, tmp_path: Path) -> None:
    with node_at(tmp_path, listen__tls=True, tls__cert_file=pki.node) as process:
        assert process.announced["tcp"].startswith("tls://")
        with client_of(process, tls=TlsFiles(pki.ca)) as client:
            assert client.status()["name"] == "node"
            with pickle.loads(pickle.dumps(client)) as copied:
                assert copied.status()["name"] == "node"
        process.restart()
        with client_of(process, tls=TlsFiles(pki.ca)) as client:
            assert client.status()["name"] == "node"
        with process.connect("unix") as local:
            assert local.status()["name"] == "node", "a socket of this machine has no TLS"


def test_clients_that_do_not_fit_the_door_get_an_error_that_says_what_to_do(pki: Pki, tmp_path: Path) -> None:
    with node_at(tmp_path, listen__tls=True, tls__cert_file=pki.node) as process:
        for files in (NO_FILES, TlsFiles(pki.stranger)):
            with client_of(process, tls=files) as client, pytest.raises(NotAuthenticated) as caught:
                client.status()
            assert "certificate is not valid" in caught.value.why
            assert "--ca-file" in caught.value.fix
        with client_of(process, "tcp", patience_s=0.0) as client, pytest.raises(NodeUnavailable) as late:
            client.status()
        assert "write tls:// in the place of tcp://" in late.value.fix
        status, _ = get(process, "/healthz")
        assert status == 200
        _, metrics = get(process, "/metrics")
        assert "oncewire_tls_handshakes_failed_total 2.0" in metrics


def test_a_tls_client_of_a_plain_door_hears_that_it_is_plain(pki: Pki, tmp_path: Path) -> None:
    with node_at(tmp_path) as process:
        with client_of(process, tls=TlsFiles(pki.ca)) as client, pytest.raises(NodeError) as caught:
            client.status()
        assert "the other side does not speak TLS" in caught.value.why
        assert "without it write tcp://" in caught.value.fix


def test_a_door_may_ask_for_certificates(pki: Pki, tmp_path: Path) -> None:
    with node_at(
        tmp_path, listen__tls=True, tls__cert_file=pki.node, tls__ca_file=pki.ca, tls__client_certificates="required"
    ) as process:
        with client_of(process, tls=TlsFiles(pki.ca, pki.client)) as client:
            assert client.status()["name"] == "node"
        with client_of(process, tls=TlsFiles(pki.ca)) as client, pytest.raises(NotAuthenticated) as caught:
            client.status()
        assert "the other side requires a certificate" in caught.value.why


def test_the_commands_have_the_options_and_variables_of_routers(pki: Pki, tmp_path: Path) -> None:
    with node_at(tmp_path, listen__tls=True, tls__cert_file=pki.node) as process:
        command = ["status", process.announced["tcp"], "--json", "--secret-file", process.announced["secret"]]
        for more, variables in ((["--ca-file", str(pki.ca)], {}), ([], {"ONCEWIRE_CA_FILE": str(pki.ca)})):
            done = CliRunner().invoke(bridge, [*command, *more], env=variables)
            assert done.exit_code == 0, done.output
            assert json.loads(done.output)["name"] == "node"
        refused = CliRunner().invoke(bridge, command)
        assert refused.exit_code == 2
        for part in ("certificate is not valid", "what to do: check authority, certificate and key (--ca-file,"):
            assert part in refused.output
        plain = ["status", "tcp://127.0.0.1:1", *command[2:], "--ca-file", str(pki.ca)]
        shown = CliRunner().invoke(bridge, plain).output
        assert "why: tcp://127.0.0.1:1 does not ask for TLS\nwhat to do: write tls://HOST:PORT" in shown


def test_operators_log_in_with_https_and_a_user_of_the_file(pki: Pki, tmp_path: Path) -> None:
    users = tmp_path / "users"
    write(str(users), [line("ann")])
    with node_at(tmp_path, http__tls=True, tls__cert_file=pki.node, users_file=users) as process:
        assert process.announced["http"].startswith("https://")
        context = ssl.create_default_context(cafile=pki.ca)
        assert get(process, "/healthz", context) == (200, {"status": "ok"})
        right, wrong = (login("ann", each) for each in (PASSWORD, "another"))
        status, text = get(process, "/metrics", context, Authorization=right)
        assert status == 200
        assert 'oncewire_node_logins_failed_total{listener="http"} 0.0' in text
        status, reported = get(process, "/metrics", context)
        assert (status, reported["error"]) == (401, "this needs a login")
        assert "users_file" in reported["fix"]
        assert get(process, "/api/v1/state", context, Authorization=wrong)[0] == 401
        _, text = get(process, "/metrics", context, Authorization=right)
        assert 'oncewire_node_logins_failed_total{listener="http"} 1.0' in text
        write(str(users), [line("bob")])
        assert get(process, "/metrics", context, Authorization=right)[0] == 401, "the file is read again"
        bob = login("bob", PASSWORD)
        assert get(process, "/metrics", context, Authorization=bob)[0] == 200
        for _ in range(5):
            get(process, "/metrics", context, Authorization=wrong)
        status, reported = get(process, "/metrics", context, Authorization=bob)
        assert (status, reported["error"]) == (429, "too many failed logins from your address")
        with pytest.raises(URLError, match="CERTIFICATE_VERIFY_FAILED"):
            get(process, "/healthz", ssl.create_default_context(cafile=pki.stranger))


def test_wrong_secrets_and_refused_connections_are_counted(tmp_path: Path) -> None:
    with node_at(tmp_path) as process:
        with (
            RemoteNode(process.announced["tcp"], b"not the secret of it", patience_s=0.0) as client,
            pytest.raises(NotAuthenticated),
        ):
            client.status()
        _, metrics = get(process, "/metrics")
        assert 'oncewire_node_logins_failed_total{listener="pipeline"} 1.0' in metrics
        assert 'oncewire_connections_turned_away_total{listener="pipeline"} 0.0' in metrics
        assert 'oncewire_connections_opening{listener="http"} 1.0' in metrics


def test_a_replaced_certificate_is_shown_to_the_next_client(tmp_path: Path) -> None:
    authorities = [trustme.CA(), trustme.CA()]
    cas = [tmp_path / "ca-0.pem", tmp_path / "ca-1.pem"]
    shown = tmp_path / "node.pem"

    def show(number: int) -> None:
        authorities[number].cert_pem.write_to_path(cas[number])
        authorities[number].issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(shown)

    show(0)
    with node_at(tmp_path, listen__tls=True, tls__cert_file=shown) as process:
        for number in (0, 1):
            show(number)
            with client_of(process, tls=TlsFiles(cas[number])) as client:
                assert client.status()["name"] == "node"


@pytest.mark.parametrize(
    ("settings", "what", "fix"),
    [
        ({"listen__tls": True}, "listen.tls in", "set tls.cert_file and tls.key_file"),
        ({"http__tls": True}, "http.tls in", "set tls.cert_file and tls.key_file"),
        ({"listen__tls": True, "tls__key_file": "NODE"}, "listen.tls in", "set tls.cert_file and tls.key_file"),
        ({"listen__tls": True, "tls__cert_file": "none.pem"}, "the TLS files", "PEM files that this process may read"),
        ({"listen__tls": True, "tls__cert_file": "CA"}, "the TLS files", "PEM files that this process may read"),
        ({"tls__client_certificates": "required"}, "tls.client_certificates in", "set listen.tls = true"),
        (
            {"http__tls": True, "tls__cert_file": "NODE", "http__client_certificates": "required"},
            "http.client_certificates in",
            "set tls.ca_file",
        ),
        ({"users_file": "none", "http__host": "0.0.0.0"}, "users_file in", "set http.tls"),
        ({"users_file": "none"}, "none cannot be read", "oncewire users add"),
    ],
)
def test_settings_of_doors_that_cannot_be_used_are_refused_in_a_sentence(
    settings: dict[str, object], what: str, fix: str, pki: Pki, tmp_path: Path
) -> None:
    config = tmp_path / "node.toml"
    files = {"NODE": str(pki.node), "CA": str(pki.ca)}
    given = {key: files.get(str(value), value) for key, value in settings.items()}
    config.write_text(
        f'name = "node"\nfolder = "{tmp_path / "node"}"\nrouters = ["{NOWHERE}"]\nlisten.port = 0\n'
        f"http.port = 0\n{toml(**given)}"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-m", "bridges.node", "--config", config],
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert what in done.stderr
    assert fix in done.stderr
    assert "Traceback" not in done.stderr


def test_spark_gives_its_nodes_the_files_and_refuses_them_without_tls(pki: Pki) -> None:
    given = {
        "bridge": "tls://node:7072",
        "bridge.secret": "a secret of some length",
        "subscribe": "orders",
        "subscription": "s",
        "bridge.tls.ca": str(pki.ca),
        "bridge.tls.certificate": str(pki.client),
    }
    assert source_options(given).bridge.node_tls == TlsFiles(pki.ca, pki.client)
    with pytest.raises(BadRequest, match="asks for no TLS"):
        source_options({**given, "bridge": "tcp://node:7072"})
    with pytest.raises(BadRequest, match="No such file"):
        source_options({**given, "bridge.tls.ca": "none.pem"})
