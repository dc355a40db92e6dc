"""What the image installs is pinned by version and hash, names no registry, and is what the project declares."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()
REQUIREMENTS = (ROOT / "deploy" / "requirements.txt").read_text()
PINNED = dict(re.findall(r"^([a-z0-9-]+)==(\S+) \\$", REQUIREMENTS, re.MULTILINE))
EXTRAS = ("otel", "postgres", "queue")
"""Of the image."""


def names(declared: list[str]) -> set[str]:
    """Names of requirements, as PyPI spells them (PEP 503)."""
    return {re.split(r"[^A-Za-z0-9._-]", each)[0].lower().replace("_", "-") for each in declared}


def test_the_image_pins_what_the_project_declares_at_the_versions_that_are_known_to_work() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    declared = names(project["project"]["dependencies"])
    for extra in EXTRAS:
        declared |= names(project["project"]["optional-dependencies"][extra])
    assert declared | names(project["build-system"]["requires"]) <= set(PINNED)
    known = dict(re.findall(r"^([a-z0-9-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    assert {name: version for name, version in PINNED.items() if known.get(name) != version} == {}, "run: make pins"


def test_the_pins_are_names_versions_and_hashes_and_name_no_registry() -> None:
    lines = [line for line in REQUIREMENTS.splitlines() if line and not line.startswith("#")]
    pin, digest = r"[a-z0-9-]+==\S+ \\", r"    --hash=sha256:[0-9a-f]{64}(?: \\)?"
    assert [line for line in lines if not re.fullmatch(f"{pin}|{digest}", line)] == []
    # A release with compiled parts has a file for each kind of machine, and the hash of each is there.
    per_release = {block.split("==")[0]: block.count("sha256:") for block in re.split(r"\n(?=[a-z])", REQUIREMENTS)}
    assert min(per_release[name] for name in ("aiohttp", "uvloop", "multidict", "yarl", "frozenlist")) > 10
    assert all(per_release[name] for name in PINNED)


def test_the_image_installs_nothing_but_what_is_pinned() -> None:
    joined = DOCKERFILE.replace("\\\n", " ")
    installs = re.findall(r"bin/pip install ([^\n&]*)", joined)
    assert installs == [
        "--no-cache-dir --require-hashes --only-binary=:all: -r requirements.txt",
        "--no-cache-dir --no-deps --no-index --no-build-isolation .",
    ]
    assert "!deploy/requirements.txt" in (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()


@pytest.mark.needs("cyclonedx")
def test_the_list_of_parts_names_what_is_installed_and_no_path_of_this_machine(tmp_path: Path) -> None:
    # What `make sbom` runs, on this environment: to make the image's anew takes minutes.
    file = tmp_path / "sbom.json"
    makefile = (ROOT / "Makefile").read_text()
    command = re.search(r"cyclonedx-py (environment --pyproject pyproject.toml .*) \\\n", makefile)
    assert command is not None
    program = ROOT / ".tools" / "supply" / "bin" / "cyclonedx-py"
    subprocess.run([program, *command.group(1).split(), "-o", file, sys.executable], cwd=ROOT, check=True, timeout=200)
    found = json.loads(file.read_text())
    assert found["bomFormat"] == "CycloneDX"
    assert found["metadata"]["component"]["name"] == "oncewire"
    assert {"aiohttp", "uvloop"} <= {each["name"] for each in found["components"]}
    assert str(ROOT) not in file.read_text()
