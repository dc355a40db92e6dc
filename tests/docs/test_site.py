"""The site builds without a warning: each link and anchor leads somewhere, each page is in the navigation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.code_blocks import ROOT

BUILD_S = 200.0


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
    api = (tmp_path / "reference" / "api" / "index.html").read_text()
    assert "Send a message and wait until every subscription has processed it" in api
    commands = (tmp_path / "reference" / "cli" / "index.html").read_text()
    assert 'id="oncewire-cluster-new-nonce"' in commands
    assert (tmp_path / "reference" / "errors" / "amqp-link-stolen" / "index.html").is_file()
    # Pages beside docs/, with links that lead to the site.
    assert 'href="../../walkthrough/"' in (tmp_path / "project" / "contributing" / "index.html").read_text()
    # A list right behind a paragraph is a list, as on GitHub.
    assert "<li>Its last release, 0.12.0" in (tmp_path / "stores" / "index.html").read_text()
