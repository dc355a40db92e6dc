"""What an application gets by `pip install oncewire`: the package `oncewire`, click, and nothing else."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from oncewire.cli.commands import ELSEWHERE

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
VERSION: str = PROJECT["project"]["version"]
COMMANDS: dict[str, str] = PROJECT["project"]["entry-points"]["oncewire.commands"]
BUILD_S = 200.0
TRY_S = 100.0


def built(folder: Path, package: str) -> Path:
    """The wheel of one package of this tree."""
    command = [sys.executable, str(ROOT / "scripts" / "build_packages.py"), str(ROOT), str(folder), "--only", package]
    subprocess.run(command, check=True, timeout=BUILD_S)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("client"), "oncewire")


def metadata_of(wheel: Path, name: str) -> str:
    with zipfile.ZipFile(wheel) as files:
        (path,) = (each for each in files.namelist() if each.endswith(f".dist-info/{name}"))
        return files.read(path).decode()


def needs_of(metadata: Message, extra: str = "") -> set[str]:
    """Names of what is installed with it."""
    found = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    return {each.name for each in found if each.marker is None or each.marker.evaluate({"extra": extra})}


def test_the_clients_wheel_is_the_package_oncewire_for_every_python_and_system(client: Path) -> None:
    assert client.name == f"oncewire-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(client) as files:
        names = {name for name in files.namelist() if ".dist-info/" not in name}
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "oncewire").rglob("*.py")}
    assert names == sources | {"oncewire/py.typed"}


def test_an_application_installs_the_client_with_click_and_the_rest_by_extras(client: Path) -> None:
    metadata = Parser().parsestr(metadata_of(client, "METADATA"))
    assert needs_of(metadata) == {"click"}
    assert {"router", "edge", "chaos", "demo", "spark", "otel"} <= set(metadata.get_all("Provides-Extra", []))
    for extra in metadata.get_all("Provides-Extra", []):
        is_of_client = extra in PROJECT["tool"]["oncewire"]["client-extras"]
        assert ("oncewire-server" in needs_of(metadata, extra)) is not is_of_client, extra
    assert f'oncewire-server=={VERSION}; extra == "router"' in metadata.get_all("Requires-Dist", [])


def test_the_clients_wheel_brings_its_own_commands_and_knows_who_brings_the_others(client: Path) -> None:
    declared = metadata_of(client, "entry_points.txt")
    brought = {name for name, value in COMMANDS.items() if f"{name} = {value}" in declared.splitlines()}
    assert {"pub", "sub", "bench", "consumer", "context", "version"} == brought
    assert set(COMMANDS) - brought == set(ELSEWHERE)


@pytest.mark.slow
def test_the_servers_wheel_has_the_other_folders_and_needs_the_client_of_its_release(tmp_path: Path) -> None:
    wheel = built(tmp_path, "oncewire-server")
    with zipfile.ZipFile(wheel) as files:
        names = {name for name in files.namelist() if ".dist-info/" not in name}
    packages = {"router", "topology", "delivery_records", "bridges", "pyspark_oncewire", "chaos"}
    assert {name.partition("/")[0] for name in names} == packages
    python = {path.relative_to(ROOT).as_posix() for package in packages for path in (ROOT / package).rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == python
    assert {f"{package}/py.typed" for package in packages} <= names
    assert "topology/inspector/page/files/main.js" in names
    metadata = Parser().parsestr(metadata_of(wheel, "METADATA"))
    assert f"oncewire=={VERSION}" in metadata.get_all("Requires-Dist", [])
    both = needs_of(metadata) - {"oncewire"} | {"click"}
    assert both == {Requirement(each).name for each in PROJECT["project"]["dependencies"]}, "as a checkout's install"
    assert metadata_of(wheel, "entry_points.txt").count(" = ") == len(ELSEWHERE) + 1


def environment(folder: Path, wheel: Path) -> Path:
    """The Python of an environment with the client's wheel and click, which needs no network."""
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    (packages,) = (folder / "lib").glob("python*/site-packages")
    for file in importlib.metadata.files("click") or []:
        if ".." not in file.parts:
            (packages / file).parent.mkdir(parents=True, exist_ok=True)
            (packages / file).write_bytes(Path(str(file.locate())).read_bytes())
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", "--no-index", str(wheel)], check=True, timeout=BUILD_S)
    subprocess.run([*pip, "check"], check=True, timeout=BUILD_S, stdout=subprocess.DEVNULL)
    return python


@pytest.mark.slow
@pytest.mark.cold
def test_an_empty_environment_with_the_clients_wheel_publishes_and_subscribes(tmp_path: Path, client: Path) -> None:
    python = environment(tmp_path / "empty", client)
    (packages,) = (tmp_path / "empty" / "lib").glob("python*/site-packages")
    found = {path.name for path in packages.iterdir()}
    assert {name for name in found if not name.startswith(("click", "oncewire-"))} == {"oncewire"}
    tried = subprocess.run(
        [sys.executable, "-P", ROOT / "scripts" / "try_release.py", VERSION, python],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=TRY_S,
    )
    assert tried.returncode == 0, tried.stderr
    assert "the client alone" in tried.stdout


@pytest.mark.slow
@pytest.mark.cold
def test_a_command_of_the_other_package_is_met_with_what_installs_it(tmp_path: Path, client: Path) -> None:
    oncewire = environment(tmp_path / "empty", client).with_name("oncewire")
    settings = {"PATH": os.defpath, "HOME": str(tmp_path)}
    for name, extra in ELSEWHERE.items():
        done = subprocess.run(
            [oncewire, name, "--anything"], env=settings, capture_output=True, text=True, check=False, timeout=TRY_S
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.splitlines()[-1] == f'what to do: pip install "oncewire[{extra}]"'
    help_text = subprocess.run([oncewire, "--help"], env=settings, capture_output=True, text=True, check=True).stdout
    assert {line.split()[0] for line in help_text.partition("Commands:\n")[2].splitlines() if line} == set(
        COMMANDS
    ) - set(ELSEWHERE)
    versions = json.loads(subprocess.check_output([oncewire, "version", "--json"], env=settings, text=True))
    assert (versions["oncewire"], versions["compiled"], set(versions["packages"])) == (VERSION, False, {"click"})
