"""The pages for operators name only what exists: settings, metrics, events, errors, experiments."""

from __future__ import annotations

import re
from pathlib import Path

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

import oncewire.client
import oncewire.client.transactions
from bridges.edge.events import EdgeEvent
from chaos.experiments.catalogue import catalogue
from delivery_records.model.outcomes import Decision
from oncewire.settings.schema import settings_of
from router.process.logs import RouterEvent
from router.settings.config import RouterConfig
from tests.edge.edge_process import running_edge, settings
from tests.router.processes import running_router

ROOT = Path(__file__).parents[2]
PAGE = "\n".join((ROOT / "docs" / name).read_text() for name in ("operations.md", "monitoring.md"))
CODE = re.findall(r"`([^`\n]+)`", PAGE)
DOTTED = re.compile(r"(?:etcd|http|inter_router|limits|listen|log|telemetry)\.[a-z_]+")
SNAKE = re.compile(r"[a-z]+(?:_[a-z]+)+")
EVENTS = {event.value for event in (*RouterEvent, *Decision, *EdgeEvent)}
SETTING_NAMES = {setting.key for setting in settings_of(RouterConfig).values()}


def test_every_setting_on_the_page_exists() -> None:
    named = {word for word in CODE if DOTTED.fullmatch(word)}
    assert len(named) > 10
    assert named <= SETTING_NAMES


def test_every_log_event_and_plain_setting_on_the_page_exists() -> None:
    named = {word for word in CODE if SNAKE.fullmatch(word) and not word.startswith("oncewire_")} - {"router_rid"}
    assert len(named) > 10
    assert named <= EVENTS | SETTING_NAMES


async def test_the_page_names_every_metric_that_is_served_and_no_other(tmp_path: Path) -> None:
    served: set[str] = set()
    async with running_router("--standalone") as router, aiohttp.ClientSession() as session:
        text = settings(f"sqlite:///{tmp_path}/edge.db", [router.url], "[[publish]]")
        async with running_edge(tmp_path / "edge.toml", text) as edge:
            for url in (router.http, edge.url):
                async with session.get(f"{url}/metrics") as answer:
                    families = text_string_to_metric_families(await answer.text())
                served |= {family.name + ("_total" if family.type == "counter" else "") for family in families}
    named = {word for word in CODE if re.fullmatch(r"oncewire_[a-z_]+", word)}
    assert named == {name for name in served if name.startswith("oncewire_")}


def test_the_page_names_every_alert_with_its_severity_and_no_other() -> None:
    rules = (ROOT / "deploy" / "prometheus" / "alerts.yml").read_text()
    there = re.findall(r"- alert: (\w+)\n(?:.*\n)*?\s+labels: \{severity: (\w+)\}", rules)
    assert len(there) == rules.count("- alert: ") > 10
    assert sorted(re.findall(r"^\| `(Oncewire\w+)` \| (\w+) \|", PAGE, re.MULTILINE)) == sorted(there)


def test_every_error_on_the_page_is_one_of_the_client() -> None:
    named = {word for word in CODE if re.fullmatch(r"(?!Oncewire)(?:[A-Z][a-z]+){2,}", word)}
    assert len(named) > 5
    assert named <= {*dir(oncewire.client), *dir(oncewire.client.transactions)}


def test_every_experiment_of_the_rehearsal_exists_and_none_is_left_out() -> None:
    rows = PAGE.split("| to see | run |")[1].split("\n\n")[0]
    assert set(re.findall(r"`([a-z][a-z-]+)`", rows)) == set(catalogue(1))


def test_the_page_names_every_view_of_the_inspector_and_no_other() -> None:
    main = (ROOT / "topology" / "inspector" / "page" / "files" / "main.js").read_text()
    views = re.findall(r'^  \["\w*", "(\w+)", ', main.split("const VIEWS = [")[1].split("\n];")[0], re.MULTILINE)
    rows = PAGE.split("| view | question it answers | command line |")[1].split("\n\n")[0]
    assert sorted(re.findall(r"^\| (\w+) \|", rows, re.MULTILINE)) == sorted(name.lower() for name in views)
