"""The node's settings and commands: what is wrong is said in three lines with exit code 2, never in a traceback."""

from __future__ import annotations

import logging
import subprocess
import sys
import tomllib
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from bridges.node.running import LOG_FORMAT, LogFormatter
from bridges.node.settings import NODE, SUBSCRIPTION
from bridges.node.settings_loading import explain, load, open_secret
from oncewire.cli.errors import CliError
from oncewire.settings.schema import REQUIRED

GOOD = 'folder = "/tmp/n"\nrouters = ["amqp://127.0.0.1"]\n'


def file_of(tmp_path: Path, text: str) -> str:
    path = tmp_path / "node.toml"
    path.write_text(text)
    return str(path)


def test_a_file_with_everything_is_read(tmp_path: Path) -> None:
    settings = load(
        file_of(
            tmp_path,
            """
            name = "n1"
            folder = "/var/lib/n1"
            routers = ["amqp://user:secret@one:5672", "amqps://two"]
            secret_file = "/etc/secret"
            listen = { host = "0.0.0.0", port = 1, unix = "/run/n1.sock" }
            http.port = 0
            outbox.max_bytes = "2 MiB"
            defaults = { credit = 50, retention_s = 3600 }
            [[subscription]]
            name = "flights"
            topics = ["orders", "trains.#"]
            credit = 7
            [[subscription]]
            name = "hotels"
            topics = ["hotels"]
            container_id = "other"
            max_journal_bytes = "1 GiB"
            """,
        )
    )
    assert settings.values["listen.unix"] == Path("/run/n1.sock")
    assert settings.node.max_outbox_bytes == 2 << 20
    flights, hotels = settings.node.subscriptions
    assert (flights.container_id, flights.credit, flights.retention_s) == ("n1.flights", 7, 3600.0)
    assert (hotels.container_id, hotels.credit, hotels.max_journal_bytes) == ("other", 50, 1 << 30)
    assert settings.node.defaults.credit == 50


@pytest.mark.parametrize(
    ("text", "what", "fix"),
    [
        ('routers = ["amqp://x"]', "folder is missing", "set it to a folder"),
        (GOOD + "foldr = 1", "unknown setting foldr", "did you mean folder?"),
        (GOOD + "listen.prot = 1", "unknown setting listen.prot", "did you mean listen.port?"),
        (GOOD + "listen.port = 70000", "listen.port = 70000", "set listen.port"),
        (GOOD + "listen.port = true", "listen.port = True", "set listen.port"),
        ('folder = "/x"\nrouters = []', "routers = ***", "what is allowed"),
        ('folder = "/x"\nrouters = ["http://u:password@x"]', "routers = ***", "what is allowed"),
        (GOOD + 'listen.host = ""', "would be of no use", "set one of them"),
        (GOOD + "subscription = 3", "subscription in", "[[subscription]]"),
        (GOOD + '[[subscription]]\ntopics = ["a"]', "subscription.name is missing", "set it"),
        (GOOD + '[[subscription]]\nname = "../a"\ntopics = ["a"]', "subscription.name = '../a'", "what is allowed"),
        (GOOD + '[[subscription]]\nname = "a"\ntopics = ["a", "a"]', "subscription.topics", "what is allowed"),
        (GOOD + '[[subscription]]\nname = "a"\ntopics = ["a"]\n' * 2, "subscription.name = 'a'", "of its own"),
        (GOOD + 'outbox.max_bytes = "many"', "outbox.max_bytes = 'many'", "what is allowed"),
        (GOOD + "defaults.group_ms = -1", "defaults.group_ms = -1", "what is allowed"),
        ("= 3", "is not TOML", "fix that line"),
    ],
)
def test_what_cannot_be_used_is_reported_with_its_remedy(tmp_path: Path, text: str, what: str, fix: str) -> None:
    with pytest.raises(CliError) as caught:
        load(file_of(tmp_path, text))
    assert what in caught.value.what
    assert fix in caught.value.fix
    assert "password" not in "".join(caught.value.lines())


def test_a_file_that_is_not_there_or_not_text_is_reported(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="cannot be read"):
        load(str(tmp_path / "none"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(CliError, match="is not TOML"):
        load(str(tmp_path / "binary"))


def test_every_setting_is_explained_with_its_default() -> None:
    text = explain()
    for key, setting in {**NODE, **SUBSCRIPTION}.items():
        assert setting.reason in text
        assert f"# {key.rpartition('.')[2]} = " in text
    for setting in NODE.values():
        if setting.default is not REQUIRED and setting.default is not None:
            setting.parse(setting.default)
    tomllib.loads(text)


def test_a_secret_is_made_once_and_is_its_owners(tmp_path: Path) -> None:
    settings = load(file_of(tmp_path, f'folder = "{tmp_path}"\nrouters = ["amqp://x"]'))
    secret, path = open_secret(settings)
    assert open_secret(settings) == (secret, path)
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("short")
    with pytest.raises(CliError, match="cannot be used"):
        open_secret(settings)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "error: no bridge node can be run"),
        (["--config", "/none"], "error: the configuration file /none cannot be read"),
        (["--colour"], "error: `oncewire bridge` cannot be run as it was typed"),
    ],
)
def test_the_command_refuses_misuse_without_a_traceback(arguments: list[str], line: str) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "bridges.node", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 3
    assert done.stderr.splitlines()[0].startswith(line.split("`", maxsplit=1)[0])


def test_a_folder_that_cannot_be_used_ends_the_command(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    config = file_of(tmp_path, f'folder = "{tmp_path}/file/x"\nrouters = ["amqp://x"]\n')
    done = subprocess.run(
        [sys.executable, "-P", "-m", "bridges.node", "--config", config], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "cannot be used" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_log_says_times_in_utc_as_routers_do() -> None:
    record = logging.LogRecord("node", logging.INFO, "", 0, "it runs", None, None)
    time, level, name, *_ = LogFormatter(LOG_FORMAT).format(record).split()
    assert (level, name) == ("INFO", "node")
    at = datetime.fromisoformat(time)
    assert at.utcoffset() == timedelta()
    assert abs(at.timestamp() - record.created) < 0.01
