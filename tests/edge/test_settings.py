"""Settings of an edge: where they come from, what would run, and one clear error for each wrong value."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bridges.edge.cli import edge as group
from bridges.edge.kinds import KINDS
from bridges.edge.settings import EDGE
from bridges.edge.settings_loading import EdgeSettings, explain, load
from oncewire.cli.errors import CliError
from oncewire.cli.run import run
from oncewire.settings.loading import read_toml

GOOD = '[edge]\nname = "e"\nstore = "sqlite:///e.db"\nrouters = ["amqp://ann:secret@r1:5672"]\n'
QUEUE = '[[queue]]\nname = "q"\n'


def loaded(tmp_path: Path, text: str, **environment: str) -> EdgeSettings:
    file = tmp_path / "edge.toml"
    file.write_text(text)
    return load(str(file), {}, environment)


def test_tables_become_parts_and_spans_of_time_have_units(tmp_path: Path) -> None:
    text = GOOD + 'lease = "1500ms"\n' + QUEUE + 'history = "7d"\nbackoff = "500ms"\nmax_payload_bytes = "1MiB"\n'
    found = loaded(tmp_path, text + '[[feed]]\ntopic = "a.#"\nqueue = "q"\ntimeout = "12h"\n[[publish]]\n')
    assert found.values["edge.lease"] == 1.5
    assert [part.key for part in found.parts] == [("queue", "q"), ("feed", "a.# to q"), ("publish", "outbox")]
    queue, feed, publish = (part.values for part in found.parts)
    assert (queue["history"], queue["backoff"], queue["max_payload_bytes"]) == (604_800, 0.5, 1 << 20)
    assert (feed["timeout"], publish["require"]) == (43_200, 0)


def test_variables_and_flags_come_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "edge.toml"
    file.write_text(GOOD + QUEUE)
    variables = {
        "ONCEWIRE_EDGE_NAME": "of the variable".replace(" ", "-"),
        "ONCEWIRE_EDGE_ROUTERS": "amqp://r2,amqps://r3",
        "ONCEWIRE_EDGE_HTTP_PORT": "1",
        "ONCEWIRE_HTTP_PORT": "2",  # a router's
        "ONCEWIRE_EDGE_LEASE": "5s",
    }
    found = load(str(file), {"http_port": "3"}, variables).values
    assert (found["edge.name"], found["edge.routers"]) == ("of-the-variable", ("amqp://r2", "amqps://r3"))
    assert (found["http.port"], found["edge.lease"]) == (3, 5.0)
    with pytest.raises(CliError, match="ONCEWIRE_EDGE_HTTP_PROT"):
        load(str(file), {}, {"ONCEWIRE_EDGE_HTTP_PROT": "1"})


def test_check_prints_what_would_run_without_a_password(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "edge.toml"
    text = GOOD.replace("sqlite:///e.db", "postgresql://bob:secret@db/work") + QUEUE
    file.write_text(text)
    assert run(["serve", "--config", str(file), "--check"], group) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {
        "edge": "e",
        "store": "postgresql://db/work",
        "routers": ["amqp://r1:5672"],
        "http": "http://127.0.0.1:7074",
        "parts": [{"kind": "queue", "name": "q"}],
    }


def test_what_print_config_prints_is_a_file_with_every_setting(tmp_path: Path) -> None:
    lines = [line.removeprefix("# ") for line in explain().splitlines()]
    page = "\n".join(lines)
    for key, each in EDGE.items():
        assert f"{each.name} = " in page, key
    for kind in KINDS.values():
        assert f"[[{kind.table}]]" in page
        assert all(f"{name} = " in page for name in kind.settings)
    (tmp_path / "edge.toml").write_text(explain())
    assert set(read_toml(str(tmp_path / "edge.toml"))) <= {key.partition(".")[0] for key in EDGE}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("", ""), "has no table of a part"),
        (("", "[[queues]]\n"), "did you mean [[queue]]?"),
        (("", "[queue]\nname = 'q'\n"), "write [[queue]] above its settings"),
        (("", "[[queue]]\n"), "queue.name is missing"),
        (("", "[[queue]]\nname = ' q'\n"), "queue.name = "),
        (("", QUEUE + QUEUE), "two of them are 'q'"),
        (("", "[[queue]]\nname = 'q'\nhistory = '7 weeks'\n"), "queue.history = '7 weeks'"),
        (("", "[[queue]]\nname = 'q'\nmax_retries = -1\n"), "queue.max_retries = -1"),
        (("", "[[queue]]\nname = 'q'\nmax_retrys = 1\n"), "did you mean queue.max_retries?"),
        (("", "[[feed]]\ntopic = 'a|b'\nqueue = 'q'\n"), "feed.topic = 'a|b'"),
        (("", "[[feed]]\ntopic = 'a'\n"), "feed.queue is missing"),
        (("", "[[feed]]\ntopic = 'a'\nqueue = 'q'\npriority = 1000\n"), "feed.priority = 1000"),
        (("", "[[publish]]\n[[publish]]\n"), "a store has one"),
        (("sqlite:///e.db", "mongodb://db/work"), "edge.store = ***"),
        (("sqlite:///e.db", "file.db"), "edge.store = ***"),
        (('["amqp://ann:secret@r1:5672"]', "[]"), "edge.routers = ***"),
        (('["amqp://ann:secret@r1:5672"]', '["http://r1"]'), "edge.routers = ***"),
        (('name = "e"', 'name = "an edge"'), "edge.name = 'an edge'"),
        (('name = "e"', 'name = "e"\nlease = "0s"'), "edge.lease = '0s'"),
        (("[edge]", "[http]\ntls = true\n[edge]"), "tls.cert_file is empty"),
        (("[edge]", "[http]\nhost = '0.0.0.0'\nusers_file = 'users'\n[edge]"), "in clear"),
        (("[edge]", "[tls]\nca_file = 'ca.pem'\n[edge]"), "no router's URL asks for TLS"),
        (("[edge]", "[log]\nlevel = 'loud'\n[edge]"), "log.level = 'loud'"),
        (("[edge]", "[mqtt]\nport = 1883\n[edge]"), "unknown setting mqtt.port"),
    ],
)
def test_each_wrong_value_is_one_clear_error(tmp_path: Path, change: tuple[str, str], why: str) -> None:
    old, new = change
    text = GOOD + new if not old else GOOD.replace(old, new) + QUEUE
    with pytest.raises(CliError) as refused:
        loaded(tmp_path, text)
    lines = refused.value.lines()
    assert why in "\n".join(lines), lines
    assert "secret" not in "\n".join(lines)
    assert all(lines)
