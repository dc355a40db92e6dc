"""What `deploy/` holds works with this router: settings, metrics, alerts, the unit, the image's health check."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from bridges.edge.edge import DRAIN_S
from bridges.edge.metrics import GAUGES
from bridges.edge.settings_loading import load as load_edge
from oncewire.cli.errors import CliError
from router.settings.config_loading import load
from tests.edge.edge_process import running_edge
from tests.edge.edge_process import settings as edge_settings
from tests.router.processes import running_router
from tests.support.prometheus import find_program

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
ALERTS = (DEPLOY / "prometheus" / "alerts.yml").read_text()
COMPOSE = (DEPLOY / "compose.yaml").read_text()
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
DASHBOARD = json.loads((DEPLOY / "grafana" / "dashboards" / "oncewire.json").read_text())
UNIT = DEPLOY / "systemd" / "oncewire-router.service"
EDGE_UNIT = DEPLOY / "systemd" / "oncewire-edge.service"
METRIC = re.compile(r"\b(?:oncewire|process)_[a-z_]+\b")
SUFFIXES = ("_bucket", "_count", "_sum")


def alert_names() -> list[str]:
    return re.findall(r"- alert: (\w+)", ALERTS)


def dashboard_expressions() -> list[str]:
    found = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
    found += [annotation["expr"] for annotation in DASHBOARD["annotations"]["list"]]
    return [text.replace("$__rate_interval", "1m").replace("$instance", ".*") for text in found]


async def served_metrics(folder: Path) -> set[str]:
    """Of a router and of an edge."""
    text = ""
    async with running_router("--standalone") as router, aiohttp.ClientSession() as session:
        settings = edge_settings(f"sqlite:///{folder}/edge.db", [router.url], "[[publish]]")
        async with running_edge(folder / "edge.toml", settings) as edge:
            for url in (router.http, edge.url):
                async with session.get(f"{url}/metrics") as answer:
                    text += await answer.text()
    found: set[str] = set()
    for family in text_string_to_metric_families(text):
        found.add(family.name + ("_total" if family.type == "counter" else ""))
        if family.type == "histogram":
            found |= {family.name + suffix for suffix in SUFFIXES}
    return found


def image_environment() -> dict[str, str]:
    """The settings that the image has by itself."""
    last_stage = DOCKERFILE.split("FROM ")[-1].replace("\\\n", " ")
    return dict(re.findall(r"\b(ONCEWIRE_\w+)=(\S+)", "\n".join(re.findall(r"^ENV (.*)$", last_stage, re.MULTILINE))))


def run(*command: str, cwd: Path = ROOT) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def promtool(*arguments: str, cwd: Path = DEPLOY / "prometheus") -> str:
    program = find_program("promtool")
    assert program is not None
    return run(program, *arguments, cwd=cwd)


# --- Prometheus and Grafana ---------------------------------------------------------------------------------------


async def test_every_metric_of_the_alerts_and_the_dashboard_is_served(tmp_path: Path) -> None:
    named = set(METRIC.findall(ALERTS)) | set(METRIC.findall("\n".join(dashboard_expressions())))
    assert len(named) > 30
    assert named - await served_metrics(tmp_path) == set()


@pytest.mark.needs("prometheus")
def test_the_alerts_are_rules_and_each_fires_and_is_quiet_as_it_should() -> None:
    assert f"{len(alert_names())} rules found" in promtool("check", "rules", "alerts.yml")
    assert "SUCCESS" in promtool("test", "rules", "alerts.test.yml")
    promtool("check", "config", "prometheus.yml")


def test_every_alert_has_a_test_a_severity_and_a_sentence_that_says_what_to_do() -> None:
    tests = (DEPLOY / "prometheus" / "alerts.test.yml").read_text()
    assert re.findall(r"- alertname: (\w+)", tests) == alert_names()
    blocks = ALERTS.split("- alert: ")[1:]
    assert all(re.search(r"labels: \{severity: (?:info|warning|critical)\}", block) for block in blocks)
    assert all("summary:" in block and "description:" in block for block in blocks)


@pytest.mark.needs("prometheus")
def test_every_expression_of_the_dashboard_is_one(tmp_path: Path) -> None:
    lines = ["groups:", "  - name: dashboard", "    rules:"]
    for number, expression in enumerate(dashboard_expressions()):
        lines += [f"      - record: panel:{number}", f"        expr: {json.dumps(expression)}"]
    (tmp_path / "panels.yml").write_text("\n".join(lines) + "\n")
    assert "SUCCESS" in promtool("check", "rules", "panels.yml", cwd=tmp_path)


def test_the_dashboards_panels_have_a_place_each_and_say_what_they_show() -> None:
    panels: list[dict[str, Any]] = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not taken & cells, panel["title"]
        taken |= cells
        assert panel["title"]


def test_the_dashboard_shows_each_number_of_the_parts_of_edges() -> None:
    shown = "\n".join(dashboard_expressions())
    numbers = ("runs", "owner", "restarts_total", "depth", "oldest_seconds", "rate", *GAUGES)
    assert [name for name in numbers if not re.search(rf"oncewire_edge_part_{name}\b", shown)] == []


# --- containers ---------------------------------------------------------------------------------------------------


@pytest.mark.needs("docker-compose")
def test_the_compose_file_is_one_and_its_mounts_exist() -> None:
    shown = run("docker-compose", "-f", "deploy/compose.yaml", "config")
    mounts = re.findall(rf"{re.escape(str(ROOT))}\S*?(?=:/)", shown)
    assert len(mounts) >= 4
    assert [mount for mount in mounts if not Path(mount).exists()] == []


@pytest.mark.parametrize("router", ["r1", "r2", "r3"])
def test_the_settings_of_the_compose_file_are_settings_of_the_router(router: str) -> None:
    shared = COMPOSE.split("x-settings: &settings")[1].split("\nservices:")[0]
    own = COMPOSE.split(f"\n  {router}:\n")[1].split("\n\n")[0]
    environment = dict(re.findall(r'^\s+(ONCEWIRE_\w+): "?([^"\n]+)"?$', shared + own, re.MULTILINE))
    config = load(None, {}, image_environment() | environment).config
    assert (config.id, config.listen_host, config.inter_router_port) == (router, "0.0.0.0", 5673)
    # One address is right inside, where the service's name leads to it, and outside, where the port does.
    assert config.listen_advertise == f"{router}:{config.listen_port}"
    assert f'"127.0.0.1:{config.listen_port}:{config.listen_port}"' in own
    assert set(re.findall(r'"127\.0\.0\.1:|"(?=\d+:)', own)) == {'"127.0.0.1:'}, "a port open to other machines"


def test_the_settings_of_the_compose_files_edge_are_settings_of_an_edge_that_knows_all_routers() -> None:
    found = load_edge(str(DEPLOY / "edge.toml"), {}, image_environment())
    assert [part.key for part in found.parts] == [("queue", "work"), ("publish", "outbox")]
    listen = re.findall(r"ONCEWIRE_LISTEN_ADVERTISE: (\S+)", COMPOSE)
    assert found.values["edge.routers"] == tuple(f"amqp://{address}" for address in listen)
    own = COMPOSE.split("\n  edge:\n")[1].split("\n\n")[0]
    port = found.values["http.port"]
    assert f'"127.0.0.1:{port}:{port}"' in own
    assert f'ONCEWIRE_HTTP_PORT: "{port}"' in own, "whom the image's health check asks"
    assert "edge:/var/lib/oncewire" in own
    assert found.values["edge.store"] == "sqlite:////var/lib/oncewire/edge.db"
    assert "install -d -o 10001 -m 0700 /var/lib/oncewire" in DOCKERFILE


def test_the_image_is_made_of_every_package_and_of_nothing_that_was_built() -> None:
    kept = {line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] == "!"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {name.rstrip("*") for name in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    assert packages <= kept
    assert [name for name in kept if not (ROOT / name).exists()] == []


def test_the_container_runs_as_nobody_special_and_stops_in_order() -> None:
    last_stage = DOCKERFILE.split("FROM ")[-1]
    assert "USER 10001" in last_stage
    assert "STOPSIGNAL SIGTERM" in last_stage
    assert 'ENTRYPOINT ["oncewire", "router"]' in last_stage


def test_the_image_listens_for_all_machines_and_asks_each_for_a_login() -> None:
    with pytest.raises(CliError) as refused:
        load(None, {}, image_environment())
    assert "nobody could log in" in str(refused.value.why)
    logins = {"ONCEWIRE_USERS": "ann:a password", "ONCEWIRE_INTER_ROUTER_PASSWORD": "a longer password"}
    config = load(None, {}, image_environment() | logins).config
    assert {config.listen_host, config.inter_router_host, config.http_host} == {"0.0.0.0"}
    assert (config.allow_anonymous, config.inter_router_allow_anonymous) == ("never", "never")
    assert config.http_anonymous_role == config.http_loopback_role == "none"


async def test_the_health_check_of_the_image_knows_a_router_that_is_ready_from_one_that_is_not() -> None:
    found = re.search(r"^    CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    assert found is not None
    _, flag, program = json.loads(found.group(1))

    def check(port: str) -> int:
        return subprocess.run(
            [sys.executable, flag, program], env={"ONCEWIRE_HTTP_PORT": port}, capture_output=True, check=False
        ).returncode

    async with running_router("--standalone") as router:
        port = router.http.rpartition(":")[2]
        assert check(port) == 0
    assert check(port) != 0


# --- systemd ------------------------------------------------------------------------------------------------------


@pytest.mark.needs("systemd-analyze")
@pytest.mark.parametrize("file", [UNIT, EDGE_UNIT], ids=lambda file: file.stem)
def test_systemd_takes_the_unit(file: Path, tmp_path: Path) -> None:
    # systemd looks for the program, and here it is somewhere else.
    unit = file.read_text().replace("/opt/oncewire/bin/oncewire", "/bin/true")
    (tmp_path / file.name).write_text(unit)
    assert file.name not in run("systemd-analyze", "verify", str(tmp_path / file.name))


def test_the_unit_of_an_edge_starts_it_with_a_file_and_a_store_and_waits_for_a_drain(tmp_path: Path) -> None:
    settings = dict(re.findall(r"^(\w+)=(.*)$", EDGE_UNIT.read_text(), re.MULTILINE))
    words = shlex.split(settings["ExecStart"])
    assert words == ["/opt/oncewire/bin/oncewire", "edge", "serve", "--config", "/etc/oncewire/edge.toml"]
    assert float(settings["TimeoutStopSec"]) > DRAIN_S
    name, _, value = settings["Environment"].partition("=")
    assert value.startswith(f"sqlite:////var/lib/{settings['StateDirectory']}/")
    (tmp_path / "edge.toml").write_text('[edge]\nrouters = ["amqp://r1"]\n[[publish]]\n')
    assert load_edge(str(tmp_path / "edge.toml"), {}, {name: value}).is_alone
    router = UNIT.read_text().split("RemoveIPC=")[1]
    assert EDGE_UNIT.read_text().split("RemoveIPC=")[1] == router, "both are as closed"


def test_the_unit_starts_the_router_with_a_file_and_waits_for_a_drain() -> None:
    settings = dict(re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE))
    words = shlex.split(settings["ExecStart"])
    assert words == ["/opt/oncewire/bin/oncewire", "router", "--config", "/etc/oncewire/router.toml"]
    assert settings["KillSignal"] == "SIGTERM"
    assert float(settings["TimeoutStopSec"]) > load(None, {}, {}).config.drain_limit_s


@pytest.mark.needs("systemd-analyze")
def test_only_root_and_the_service_read_the_configuration_of_the_unit(tmp_path: Path) -> None:
    settings = dict(re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE))
    made = (UNIT.parent / "oncewire-sysusers.conf").read_text()
    assert re.search(rf"^u {settings['User']} ", made, re.MULTILINE)
    kept = (UNIT.parent / "oncewire-tmpfiles.conf").read_text()
    owners = {tuple(line.split()[3:5]) for line in kept.splitlines() if not line.startswith("#")}
    assert owners == {("root", settings["Group"])}
    folder = tmp_path / "etc" / settings["ConfigurationDirectory"]
    (folder / "tls").mkdir(parents=True)
    for file in (folder / "router.toml", folder / "tls" / "router-key.pem"):
        file.touch()
        file.chmod(0o666)
    # Whoever runs the tests can give files to nobody else: the modes are what is looked at.
    (tmp_path / "here.conf").write_text(kept.replace(f" root {settings['Group']} ", f" {os.getuid()} {os.getgid()} "))
    run("systemd-tmpfiles", f"--root={tmp_path}", "--create", str(tmp_path / "here.conf"))
    for path in (folder, *folder.rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o750 if path.is_dir() else 0o640), path


def test_the_unit_names_the_wheels_of_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"./oncewire-{version}-py3-none-any.whl ./oncewire_server-{version}-py3-none-any.whl" in UNIT.read_text()
