"""The compose file of examples/shop: Docker Compose accepts it, and routers, edge and services accept its settings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bridges.edge.settings_loading import load as load_edge
from router.settings.config_loading import load
from tests.deploy.test_deploy import ROOT, image_environment, run

SHOP = ROOT / "examples" / "shop"
PROGRAMS = {"web": "web:app", "payment": "payment.py", "mail": "mail.py", "dashboard": "dashboard:app"}


def composed() -> str:
    """The file as Docker Compose reads and writes it: without anchors, two spaces deeper at each level."""
    return run("docker-compose", "-f", str(SHOP / "compose.yaml"), "config")


def service(shown: str, name: str) -> str:
    """The lines of one service."""
    return re.split(r"\n(?:  )?\b", shown.split(f"\n  {name}:\n")[1])[0]


def environment(lines: str) -> dict[str, str]:
    """What a service has in its environment."""
    return dict(re.findall(r"^      (\w+): '?([^'\n]*)'?$", lines.split("    environment:\n")[1], re.MULTILINE))


@pytest.mark.needs("docker-compose")
def test_its_routers_start_with_their_settings_and_are_those_that_services_and_edge_know() -> None:
    shown = composed()
    addresses = []
    for name in ("r1", "r2", "r3"):
        settings = {
            key: value for key, value in environment(service(shown, name)).items() if key.startswith("ONCEWIRE_")
        }
        config = load(None, {}, image_environment() | settings).config
        assert (config.id, config.listen_advertise) == (name, f"{name}:{config.listen_port}")
        assert config.http_anonymous_role == config.services_role == "operator"
        addresses.append(f"amqp://{config.listen_advertise}")
    edge = load_edge(str(SHOP / "edge.toml"), {}, image_environment())
    assert edge.values["edge.routers"] == tuple(addresses)
    assert [part.key for part in edge.parts] == [("queue", "mails"), ("feed", "shop.paid to mails")]
    for name in PROGRAMS:
        assert environment(service(shown, name))["ROUTERS"].split() == addresses


@pytest.mark.needs("docker-compose")
def test_its_services_are_files_of_the_image_and_share_the_folder_of_the_edges_store() -> None:
    shown = composed()
    copied = set(re.findall(r"\b\w+\.py\b", (SHOP / "Dockerfile").read_text()))
    assert [name for name in copied if not (SHOP / name).exists()] == []
    edge = load_edge(str(SHOP / "edge.toml"), {}, image_environment())
    folder = str(edge.values["edge.store"]).removeprefix("sqlite:///").removesuffix("/mails.db")
    for name, program in PROGRAMS.items():
        lines = service(shown, name)
        assert f"    - {program}\n" in lines
        assert f"{name}.py" in copied
        assert environment(lines)["SHOP_DATA"] == folder
        assert f"- shop:{folder}:rw" in lines
    assert f"- shop:{folder}:rw" in service(shown, "edge")


@pytest.mark.needs("docker-compose")
def test_it_opens_ports_on_this_machine_only_and_its_mounts_exist() -> None:
    shown = composed()
    assert re.findall(r"- (\S+:\d+)/tcp$", shown, re.MULTILINE) == ["127.0.0.1:8001:8001", "127.0.0.1:8000:8000"]
    mounts = re.findall(rf"{re.escape(str(ROOT))}\S*?(?=:/)", shown)
    assert mounts
    assert [mount for mount in mounts if not Path(mount).exists()] == []
