"""The site builds without a warning: each link and anchor leads somewhere, each page is in the navigation."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.docs.code_blocks import ROOT
from tests.docs.test_links import prose_lines
from tests.support.protocol import PAGES

BUILD_S = 200.0
TEST_FILE = re.compile(r"tests/[\w/]+/test_\w+\.py")


def build(site: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site), *options]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=BUILD_S
    )


@pytest.mark.slow
@pytest.mark.needs("mkdocs")
def test_the_site_builds_without_a_warning_and_has_what_is_generated(tmp_path: Path) -> None:
    done = build(tmp_path)
    assert done.returncode == 0, done.stderr
    api = (tmp_path / "reference" / "api.html").read_text()
    assert "Send a message and wait until every subscription has processed it" in api
    commands = (tmp_path / "reference" / "cli.html").read_text()
    assert 'id="oncewire-cluster-new-nonce"' in commands
    assert (tmp_path / "reference" / "errors" / "amqp-link-stolen.html").is_file()
    # Pages beside docs/, with links that lead to the site.
    assert 'href="../walkthrough.html"' in (tmp_path / "project" / "contributing.html").read_text()
    # Whoever opens the first page without a server gets on.
    assert 'href="get-started.html"' in (tmp_path / "index.html").read_text()
    # A list right behind a paragraph is a list, as on GitHub.
    assert "<li>Its last release, 0.12.0" in (tmp_path / "stores.html").read_text()


@pytest.mark.needs("mkdocs")
def test_a_page_with_a_diagram_loads_nothing_from_another_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = load_hooks()
    monkeypatch.setattr(hooks, "PARTS", tmp_path)
    diagram, text = '<head></head><pre class="mermaid">', "<head></head><p>"
    page = SimpleNamespace(url="evidence/page.html")
    assert hooks.on_post_page(diagram, page) == diagram, "not fetched: the theme loads it"
    for part in ("mermaid.js", "iframe-worker.js"):
        (tmp_path / part).touch()
    assert '<script src="../assets/parts/mermaid.js"></script></head>' in hooks.on_post_page(diagram, page)
    assert hooks.on_post_page(text, page) == text
    from mkdocs.config import load_config

    found = hooks.on_config(load_config(str(ROOT / "mkdocs.yml")))
    assert found["extra"]["polyfills"] == ["assets/parts/iframe-worker.js"]


def load_hooks() -> Any:
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "scripts" / "site_hooks.py")
    assert spec is not None
    assert spec.loader is not None
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    return hooks


WRITTEN = frozenset({"simulation.md", "chaos.md"})
"""By programs."""
MOST_LINES = 300


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.stem)
def test_a_page_can_be_read_in_one_go(page: Path) -> None:
    if page.name not in WRITTEN:
        assert len(page.read_text(encoding="utf-8").splitlines()) <= MOST_LINES, "split it"


def test_names_of_tests_stand_in_tables_of_evidence_and_not_in_prose() -> None:
    prose = [
        f"{page.relative_to(ROOT)}: {line}"
        for page in (ROOT / "docs").rglob("*.md")
        if page not in PAGES and page.parent.name != "evidence"
        for line in prose_lines(page.read_text(encoding="utf-8"))
        if TEST_FILE.search(re.sub(r"\]\([^)]*\)", "", line)) and not line.startswith(("|", "<!--", "["))
        if "Tests without a file are in" not in line and "All tests of this table are in" not in line
    ]
    assert prose == []
