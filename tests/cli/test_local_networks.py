"""`oncewire local` for people and programs, and commands that find it without an address."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from oncewire.cli import local_registry
from oncewire.cli.errors import CliError
from oncewire.cli.where import Where, require_listener
from router.commands.local_network import following_pairs
from tests.support.isolation import refusing_network
from tests.support.ports import PortBlock
from tests.support.terminal import ONCEWIRE, on_terminal
from topology.etcd.server import free_port

COMMANDS = (
    "local=router.commands.cli:local,pub=oncewire.client.cli:pub,sub=oncewire.client.cli:sub,"
    "inspect=topology.cli:inspect,manage=router.commands.manage:manage,context=oncewire.cli.context_cli:context"
)
END_S = 120.0


def oncewire(*arguments: str, text: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", ONCEWIRE, COMMANDS, *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=END_S,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.fixture
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@contextmanager
def taken(port: int) -> Iterator[None]:
    with closing(socket.socket()) as holder:
        holder.bind(("127.0.0.1", port))
        holder.listen()
        yield


def free_ports_in_a_row(count: int) -> int:
    row: list[int] = []
    while len(row) < count:  # each port is taken from those that are left to others
        port = free_port()
        row = [*row, port] if row and port == row[-1] + 1 else [port]
    return row[0]


def until_closed(port: int) -> None:
    with suppress(OSError):
        while True:
            socket.create_connection(("127.0.0.1", port)).close()


def test_ports_follow_each_other_and_leave_out_those_that_are_taken() -> None:
    amqp, http = free_ports_in_a_row(4), free_ports_in_a_row(4)
    pairs = following_pairs(amqp, http)
    assert next(pairs) == (amqp, http)
    with taken(amqp + 1), taken(http + 2):
        assert next(pairs) == (amqp + 3, http + 3)


def test_no_port_is_in_two_pairs_where_both_begin_close_to_each_other() -> None:
    first = free_ports_in_a_row(4)
    pairs = following_pairs(first, first + 1)
    assert [next(pairs), next(pairs)] == [(first, first + 1), (first + 2, first + 3)]


@pytest.mark.usefixtures("own_folders")
@pytest.mark.timeout(600)
def test_a_person_sees_addresses_page_and_next_steps_and_other_commands_need_no_address() -> None:
    amqp, http = free_ports_in_a_row(2), free_ports_in_a_row(2)
    arguments = ("local", "--routers", "2", "--port", str(amqp), "--http-port", str(http))
    with on_terminal(COMMANDS, *arguments) as network:
        shown = network.wait_for("Ctrl-C stops it.")
        assert re.search(rf"r1 +amqp://127.0.0.1:{amqp} +http://127.0.0.1:{http} ", shown), shown
        assert re.search(rf"r2 +amqp://127.0.0.1:{amqp + 1} +http://127.0.0.1:{http + 1} ", shown), shown
        assert f"See it: http://127.0.0.1:{http}" in shown
        assert "Next, type in another terminal:" in shown
        assert "{" not in shown

        done = oncewire("pub", "orders", text="two coffees\n")
        assert (done.stdout, done.returncode) == ("published 1, accepted 1 by 0 subscriptions\n", 0), done.stderr
        for word in ("router", "routers"):
            rows = json.loads(oncewire("inspect", word, "--json").stdout)["routers"]
            assert [row["id"] for row in rows] == ["r1", "r2"]
            assert len(json.loads(oncewire("manage", "list", word, "--json").stdout)["items"]) == 2
        with on_terminal(COMMANDS, "sub", "orders", "--count", "1") as subscriber:
            subscriber.wait_for("subscribed to orders")
            assert oncewire("pub", "orders", "-", text="tea\n").returncode == 0
            assert subscriber.end(None) == 0
            assert subscriber.text.splitlines()[-1] == "tea"
        # As the pages invite people to do. The other commands look at a router that runs.
        pid = re.search(r"^r1 .* (\d+) *$", shown, re.MULTILINE)
        assert pid is not None
        os.kill(int(pid[1]), signal.SIGKILL)
        until_closed(http)
        rows = json.loads(oncewire("inspect", "routers", "--json").stdout)["routers"]
        assert [row["id"] for row in rows if row["is_self"]] == ["r2"]
        assert network.end() == 0
    assert local_registry.running_network() is None


@pytest.mark.usefixtures("own_folders")
@pytest.mark.timeout(600)
def test_elsewhere_than_on_a_terminal_it_prints_one_line_of_json() -> None:
    amqp, http = free_ports_in_a_row(1), free_ports_in_a_row(1)
    arguments = ("local", "--routers", "1", "--port", str(amqp), "--http-port", str(http))
    with on_terminal(COMMANDS, *arguments, "--json") as network:
        described = json.loads(network.wait_for("}\n"))
        assert described["routers"][0]["url"] == f"amqp://127.0.0.1:{amqp}"
        found = local_registry.running_network()
        assert found is not None
        assert (found.pid, found.urls) == (network.process.pid, (f"amqp://127.0.0.1:{amqp}",))
        network.process.kill()  # a process that is killed cannot remove its entry
        network.process.wait()
        assert local_registry.running_network() is None
        assert list(local_registry.registry_folder().iterdir()) == []


@pytest.mark.usefixtures("own_folders")
@pytest.mark.timeout(600)
def test_a_router_that_ends_is_reported_and_can_be_started_again() -> None:
    amqp, http = free_ports_in_a_row(2), free_ports_in_a_row(2)
    arguments = ("local", "--routers", "2", "--port", str(amqp), "--http-port", str(http), "--json")
    with on_terminal(COMMANDS, *arguments) as network:
        first, second = json.loads(network.wait_for("}\n"))["routers"]
        os.kill(first["pid"], signal.SIGKILL)
        network.wait_for("r1 ended (signal SIGKILL); r2 is left. To have it again: oncewire local start r1")
        wrong = oncewire("local", "start", "r3")
        assert wrong.returncode == 2
        assert "has r1, r2" in wrong.stderr
        again = oncewire("local", "start", "r1")
        assert (again.returncode, again.stdout) == (0, f"r1 is ready at {first['url']}\n"), again.stderr
        os.kill(second["pid"], signal.SIGKILL)
        network.wait_for("r2 ended (signal SIGKILL); r1 is left.")
        assert oncewire("local", "start").stdout == f"r1 is ready at {first['url']}\nr2 is ready at {second['url']}\n"


@pytest.mark.usefixtures("own_folders")
def test_without_an_address_and_without_a_router_nothing_is_waited_for() -> None:
    where = Where((f"amqp://127.0.0.1:{free_port()}",), "the default", is_guessed=True)
    with pytest.raises(CliError, match="there is no router to connect to") as caught:
        require_listener(where)
    assert "nobody listens at 127.0.0.1:" in caught.value.why
    assert "start a network with `oncewire local`" in caught.value.fix
    port = free_port()
    with taken(port):
        require_listener(Where((*where.urls, f"amqp://127.0.0.1:{port}"), "the default", is_guessed=True))


@pytest.mark.usefixtures("own_folders")
def test_pub_and_inspect_at_a_network_that_has_gone_say_what_to_start(ports_of_this_run: PortBlock) -> None:
    with refusing_network(ports_of_this_run):
        for command in ("pub", "orders"), ("inspect",):
            done = oncewire(*command, text="two coffees\n")
            assert (done.returncode, done.stdout) == (2, "")
            assert f"(the local network of process {os.getpid()})" in done.stderr
            assert "what to do: start a network with `oncewire local`, or name a router: --url" in done.stderr


@pytest.mark.usefixtures("own_folders")
def test_the_network_that_was_started_last_is_found_and_a_damaged_entry_is_no_network() -> None:
    folder = local_registry.registry_folder()
    with local_registry.registered(["amqp://127.0.0.1:1"], ["http://127.0.0.1:2"]):
        (folder / "7.json").write_text("{")
        found = local_registry.running_network()
        assert found is not None
        assert (found.urls, found.http) == (("amqp://127.0.0.1:1",), ("http://127.0.0.1:2",))
        assert [path.stat().st_mode & 0o777 for path in folder.iterdir()] == [0o600]
        assert folder.stat().st_mode & 0o777 == 0o700
    assert local_registry.running_network() is None
