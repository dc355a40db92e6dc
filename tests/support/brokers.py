"""Stock brokers of the tests' own: RabbitMQ 4, ActiveMQ Artemis and Qpid Broker-J.

scripts/fetch_brokers.sh gets them. Each runs in a temporary folder, on loopback, with one listener and the user `guest`
(password `guest`). A broker that is killed and started again finds what it stored.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.requirements import TOOLS
from tests.support.waiting import wait_until
from topology.etcd.server import free_port

LOOPBACK = "127.0.0.1"
LOGIN = "guest:guest"
HEAP = ("-Xms128m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""One broker for one file of tests: small, and quick to start."""


class Broker:
    """A broker in a folder of its own.

    Attributes:
        name: as the documentation has it.
        url: where clients connect, with the login.
        hostname: the virtual host to ask for; None = that of the address.
        topic: where `publisher` sends.
        pattern: what gets it, for a subscriber.
    """

    name = ""
    hostname: str | None = None
    topic, pattern = "orders.eu", "orders.*"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"amqp://{LOGIN}@{LOOPBACK}:{self.port}"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._prepare()

    def _prepare(self) -> None:
        """Write its configuration."""
        raise NotImplementedError

    def _commands(self) -> list[list[str | Path]]:
        """The programs to start; the last one listens at `port`."""
        raise NotImplementedError

    def _environment(self) -> Mapping[str, str]:
        return {}

    def start(self) -> None:
        """Returns when it takes connections."""
        environment = {**os.environ, **self._environment()}
        for command in self._commands():
            with (self.folder / "log").open("ab") as log:
                self._processes.append(
                    subprocess.Popen(
                        command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
                    )
                )
        wait_until(self._is_up_or_ended, f"{self.name} does not listen: {self.folder}/log")
        assert self._processes[-1].poll() is None, (self.folder / "log").read_text()[-4000:]

    def _is_up_or_ended(self) -> bool:
        if self._processes[-1].poll() is not None:
            return True
        with suppress(OSError):
            socket.create_connection((LOOPBACK, self.port), 1).close()
            return True
        return False

    def kill(self) -> None:
        """As a crash does."""
        for process in reversed(self._processes):
            process.send_signal(signal.SIGKILL)
            process.wait(60)
        self._processes.clear()


class RabbitMQ(Broker):
    """RabbitMQ 4. It makes no queue for a link, so those of the tests are in its definitions.

    The exchange `amq.topic` gives `orders.#` to the queue `orders`, whose dead letters go to the queue `failed`.
    """

    name = "RabbitMQ"
    topic, pattern = "/exchanges/amq.topic/orders.eu", "/queues/orders"

    def _prepare(self) -> None:
        self._inner_port, self._epmd_port = free_port(), free_port()
        (self.folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.local = {LOOPBACK}:{self.port}\nload_definitions = {self.folder}/definitions.json\n"
            "auth_mechanisms.1 = PLAIN\nauth_mechanisms.2 = ANONYMOUS\nanonymous_login_user = none\n"
            "log.console = true\nlog.console.level = warning\n"
        )
        durable = {"vhost": "/", "durable": True, "auto_delete": False}
        dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "failed"}
        bound = {"vhost": "/", "source": "amq.topic", "destination_type": "queue", "arguments": {}}
        definitions = {
            "users": [{"name": "guest", "password": "guest", "tags": []}],
            "vhosts": [{"name": "/"}],
            "permissions": [{"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}],
            "queues": [
                {"name": "orders", "arguments": {"x-queue-type": "quorum", **dead}, **durable},
                {"name": "short", "arguments": {"x-max-length": 1, "x-overflow": "reject-publish"}, **durable},
                {"name": "others", "arguments": {}, **durable},
                {"name": "failed", "arguments": {"x-queue-type": "quorum"}, **durable},
            ],
            "bindings": [{"destination": "orders", "routing_key": "orders.#", **bound}],
        }
        (self.folder / "definitions.json").write_text(json.dumps(definitions))

    def _commands(self) -> list[list[str | Path]]:
        programs = TOOLS / "brokers/rabbitmq"
        epmd = next(programs.glob("usr/lib/erlang/erts-*/bin/epmd"))
        return [[epmd], [programs / "rabbitmq-server"]]

    def _environment(self) -> Mapping[str, str]:
        folder = str(self.folder)
        return {
            "HOME": folder,
            "LANG": "C.UTF-8",
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq.conf",
            "RABBITMQ_MNESIA_BASE": f"{folder}/db",
            "RABBITMQ_LOG_BASE": f"{folder}/logs",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/plugins",
            "RABBITMQ_NODENAME": f"tests{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._inner_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-start_epmd false",
            "RUNNING_UNDER_SYSTEMD": "true",  # the server itself, and no shell before it
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": LOOPBACK,
        }


class Artemis(Broker):
    """ActiveMQ Artemis. It makes each address, and the queue of each subscription, when a link asks for it.

    Dead letters go to the topic `failed`.
    """

    name = "ActiveMQ Artemis"

    def _prepare(self) -> None:
        (self.folder / "instance").mkdir()
        program = next((TOOLS / "brokers").glob("apache-artemis-*/bin/artemis"))
        options = (
            f"--user guest --password guest --require-login --silent --no-autotune --nio --host {LOOPBACK} --no-web "
            "--no-mqtt-acceptor --no-stomp-acceptor --no-hornetq-acceptor --no-amqp-acceptor"
        ).split()
        subprocess.run(
            [program, "create", self.folder / "instance", *options, "--default-port", str(self.port)],
            check=True,
            capture_output=True,
            timeout=120,
            env={**os.environ, "JAVA_ARGS": " ".join(HEAP)},
        )
        settings = self.folder / "instance/etc/broker.xml"
        dead = "<dead-letter-address>{}</dead-letter-address>"
        settings.write_text(settings.read_text().replace(dead.format("DLQ"), dead.format("failed")))
        profile = self.folder / "instance/etc/artemis.profile"
        profile.write_text(f'{profile.read_text()}\nJAVA_ARGS="{" ".join(HEAP)} -Dlog4j2.level=WARN"\n')

    def _commands(self) -> list[list[str | Path]]:
        return [[self.folder / "instance/bin/artemis", "run"]]


class BrokerJ(Broker):
    """Qpid Broker-J. A node of a topic exchange makes the queue of each subscription; `orders` is a queue."""

    name = "Qpid Broker-J"
    hostname = "default"
    topic, pattern = "amq.topic/orders.eu", "amq.topic/orders.*"

    def _prepare(self) -> None:
        host = {
            "type": "DERBY",
            "nodeAutoCreationPolicies": [],
            "queues": [
                {"name": "failed", "type": "standard", "durable": True},
                {
                    "name": "orders",
                    "type": "standard",
                    "durable": True,
                    "maximumDeliveryAttempts": 3,
                    "alternateBinding": {"destination": "failed"},
                },
            ],
        }
        login = {"name": "guest", "type": "managed", "password": "guest"}
        configuration = {
            "name": "tests",
            "modelVersion": "9.0",
            "authenticationproviders": [
                {"name": "plain", "type": "Plain", "secureOnlyMechanisms": [], "users": [login]}
            ],
            "ports": [
                {
                    "name": "AMQP",
                    "port": self.port,
                    "bindingAddress": LOOPBACK,
                    "protocols": ["AMQP_1_0"],
                    "authenticationProvider": "plain",
                    "virtualhostaliases": [{"name": "nameAlias", "type": "nameAlias"}],
                }
            ],
            "virtualhostnodes": [
                {
                    "name": "default",
                    "type": "JSON",
                    "defaultVirtualHostNode": "true",
                    "virtualHostInitialConfiguration": json.dumps(host),
                }
            ],
        }
        (self.folder / "configuration.json").write_text(json.dumps(configuration))

    def _commands(self) -> list[list[str | Path]]:
        jars = next((TOOLS / "brokers").glob("qpid-broker/*/lib"))
        options = [f"-DQPID_WORK={self.folder}", "-cp", f"{jars}/*", "org.apache.qpid.server.Main"]
        return [["java", *HEAP, *options, "-icp", self.folder / "configuration.json"]]


@contextmanager
def running(kind: type[Broker], folder: Path) -> Iterator[Broker]:
    """A broker for the time of the block."""
    broker = kind(folder)
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()
