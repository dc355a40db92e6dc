"""Pages name the versions of etcd that the stores are tested with."""

from __future__ import annotations

import re

import pytest

from tests.support.etcd_releases import RELEASES, SCRIPT

PROJECT = SCRIPT.parents[1]


@pytest.mark.parametrize("page", ["README.md", "docs/stores.md"])
def test_a_page_names_the_versions_that_are_tested(page: str) -> None:
    named = set(re.findall(r"\b3\.\d+\.\d+\b", (PROJECT / page).read_text()))
    assert set(RELEASES.values()) <= named
