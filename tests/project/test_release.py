"""What `make release` checks before it builds, and what it builds: the parts that need no network."""

from __future__ import annotations

import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.docs.code_blocks import blocks_of

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
VERSION: str = PROJECT["project"]["version"]
SEMVER = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")
BUILD_S = 200.0
THIS = "tests/project/test_release.py"
PAGES_ON_UPGRADES = ("docs/operations.md", "docs/how-to/recover.md", "docs/how-to/release.md", "CHANGELOG.md")
ONE_PAGE = 60


def test_the_version_is_one_of_semver_and_the_changelog_begins_with_it() -> None:
    assert SEMVER.fullmatch(VERSION)
    first = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    assert first == f"Unreleased ({VERSION})" or re.fullmatch(rf"{re.escape(VERSION)} \(\d{{4}}-\d\d-\d\d\)", first)


def test_the_changelog_says_on_one_page_what_a_release_does() -> None:
    _, *releases = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert [release.partition("\n")[0] for release in releases if len(release.splitlines()) > ONE_PAGE] == []


@pytest.mark.parametrize(
    ("entry", "why"),
    [("## Unreleased (0.0.9)", "CHANGELOG.md has neither"), ("## Unreleased (0.1.0)", "map was not fetched")],
)
def test_a_version_without_an_entry_in_the_changelog_or_without_the_map_is_not_built(
    tmp_path: Path, entry: str, why: str
) -> None:
    (tmp_path / "CHANGELOG.md").write_text(f"{entry}\n")
    (tmp_path / "constraints.txt").touch()
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.1.0"\n')
    done = subprocess.run(
        [ROOT / "scripts" / "release.sh", sys.prefix, tmp_path],
        cwd=tmp_path,
        env={"PATH": os.defpath},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "error: 0.1.0 cannot be released"
    assert why in done.stderr
    assert not (tmp_path / "dist").exists()


def committed(folder: Path) -> Path:
    """What git has, and nothing that lies about in the tree."""
    git = ["git", "-c", "safe.directory=*"]  # whoever owns the checkout
    archive = subprocess.run([*git, "archive", "--format=tar", "HEAD"], cwd=ROOT, check=True, capture_output=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder


@pytest.mark.slow
def test_what_a_checkout_installs_is_every_package_with_its_files_and_no_other(tmp_path: Path) -> None:
    source = committed(tmp_path / "source")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-index"]
    command += ["--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(source)]
    subprocess.run(command, check=True, timeout=BUILD_S)
    with zipfile.ZipFile(tmp_path / f"oncewire-{VERSION}-py3-none-any.whl") as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    packages = {name.rstrip("*") for name in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]}
    assert {name.split("/")[0] for name in names} == packages
    python = {str(path.relative_to(source)) for package in packages for path in (source / package).rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == python
    assert {f"{package}/py.typed" for package in packages} <= names
    assert "topology/inspector/page/files/main.js" in names


@pytest.mark.slow
def test_what_is_tried_in_a_fresh_environment_works_here() -> None:
    done = subprocess.run(
        [sys.executable, "-P", ROOT / "scripts" / "try_release.py", VERSION],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_S,
    )
    assert done.returncode == 0, done.stderr
    assert "each once and in order" in done.stdout


def hashes_of_packages(tree: Path, folder: Path, *, umask: int, zone: str) -> dict[str, str]:
    folder.mkdir()
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1800000000", "TZ": zone}
    command = [sys.executable, str(ROOT / "scripts" / "build_packages.py"), str(tree), str(folder)]
    subprocess.run(command, env=environment, check=True, timeout=BUILD_S, umask=umask)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


@pytest.mark.slow
def test_two_builds_of_one_source_have_the_same_bytes_wherever_and_whenever_they_are_made(tmp_path: Path) -> None:
    first, second = committed(tmp_path / "first"), committed(tmp_path / "elsewhere" / "second")
    for number, file in enumerate(sorted(second.rglob("*.py"))):
        os.utime(file, (1_500_000_000 + number, 1_500_000_000 + number))
        file.chmod(0o600)
    found = hashes_of_packages(first, tmp_path / "a", umask=0o022, zone="UTC")
    packages = (f"oncewire-{VERSION}", f"oncewire_server-{VERSION}")
    assert set(found) == {f"{name}{kind}" for name in packages for kind in ("-py3-none-any.whl", ".tar.gz")}
    assert hashes_of_packages(second, tmp_path / "b", umask=0o077, zone="Asia/Tokyo") == found
    for folder in ("oncewire", "router"):
        (second / folder / "py.typed").write_text("partial\n")
    changed = hashes_of_packages(second, tmp_path / "c", umask=0o077, zone="UTC")
    assert not set(changed.values()) & set(found.values()), "a changed source shows"


@pytest.mark.needs("ssh-keygen")
def test_the_sums_are_signed_and_checked_as_the_page_says_and_a_changed_file_is_found(tmp_path: Path) -> None:
    (text,) = [block.text for block in blocks_of(ROOT / "docs" / "how-to" / "release.md") if block.run_by == THIS]
    signing, _, checking = text.partition("\n\n")
    (tmp_path / "dist").mkdir()
    package = tmp_path / "dist" / "oncewire.whl"
    package.write_text("a wheel")

    def run(commands: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        shell = ["sh", "-e", "-c", commands.replace("~/.ssh/id_ed25519", str(tmp_path / "key"))]
        return subprocess.run(
            shell, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=60
        )

    made = run(f"ssh-keygen -q -t ed25519 -N '' -f {tmp_path / 'key'}; cd dist; sha256sum oncewire.whl >SHA256SUMS")
    assert made.returncode == 0, made.stderr
    assert run(signing).returncode == 0
    checked = run(checking)
    assert checked.returncode == 0, checked.stderr
    package.write_text("another wheel")
    assert "FAILED" in run(checking).stdout
    run("cd dist; sha256sum oncewire.whl >SHA256SUMS")
    assert "incorrect signature" in run(checking).stderr.lower(), "new sums need a new signature"


def test_pages_promise_no_upgrade_between_releases_that_do_not_exist() -> None:
    tags = subprocess.run(
        ["git", "-c", "safe.directory=*", "tag", "--list", "v*"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    pages = [(ROOT / name).read_text() for name in PAGES_ON_UPGRADES]
    says_none = ["there is no release yet" in page.lower() for page in pages]
    assert says_none == [not tags.stdout.strip()] * len(pages)


def test_an_upgrade_of_the_chart_takes_the_new_charts_values() -> None:
    page = (ROOT / "docs" / "how-to" / "kubernetes.md").read_text()
    (command,) = re.findall(r"^helm upgrade .*$", page, re.MULTILINE)
    # --reuse-values takes the former release's values alone: a value that is new is nil, and templates fail.
    assert "--reset-then-reuse-values" in command.split()
