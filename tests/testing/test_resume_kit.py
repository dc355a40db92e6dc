"""The conformance kit of the resume profile: our two clients keep every claim; one that does not is found out."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from oncewire.testing.resume import SCENARIOS, Verdict
from oncewire.testing.resume.cli import main
from oncewire.testing.resume.playing import judged
from tests.docs.code_blocks import blocks_of
from tests.interop.javascript import CLIENT
from tests.support.requirements import PROJECT, TOOLS

PAGE = PROJECT / "docs" / "reference" / "resume-profile.md"
PROGRAMS = Path(__file__).parent / "resume_programs"
NAMES = {"publisher": "publish", "subscriber": "subscribe"}
AT_ONCE = 3
"""Scenarios that are played at the same time: most of their time they wait for a program's start."""
JOURNAL = {
    "publisher": "the journal has a message before the network",
    "subscriber": "the journal has an outcome before the router",
}
CLIENTS = ["python", pytest.param("javascript", marks=pytest.mark.needs("node", "rhea"))]


def command_of(client: str, role: str, *way: str) -> str:
    if client == "javascript":
        return f"node {CLIENT}/examples/{NAMES[role]}.js"
    return " ".join([sys.executable, "-P", f"{PROGRAMS}/{NAMES[role]}.py", *way])


@pytest.fixture(autouse=True)
def packages_of_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_PATH", str(TOOLS / "node_modules"))


@pytest.mark.parametrize("role", SCENARIOS)
@pytest.mark.parametrize("client", CLIENTS)
async def test_our_clients_keep_every_claim_of_the_resume_profile(client: str, role: str) -> None:
    free = asyncio.Semaphore(AT_ONCE)

    async def verdict(claim: str) -> Verdict:
        async with free:
            return await judged(role, claim, command_of(client, role))

    verdicts = await asyncio.gather(*map(verdict, SCENARIOS[role]))
    assert [str(each) for each in verdicts if each.broken] == []


@pytest.mark.parametrize("role", SCENARIOS)
async def test_a_program_without_a_journal_is_found_out(role: str) -> None:
    verdict = await judged(role, JOURNAL[role], command_of("python", role, "forgetful"))
    assert "its map" in verdict.broken


@pytest.mark.parametrize("role", SCENARIOS)
async def test_a_program_that_does_not_ask_for_exactly_once_is_found_out(role: str) -> None:
    verdict = await judged(role, next(iter(SCENARIOS[role])), command_of("python", role, "plain"))
    assert verdict.broken == "its attach desires no topic-exactly-once"


async def test_a_program_that_does_not_attach_is_found_out() -> None:
    claim = next(iter(SCENARIOS["publisher"]))
    assert "the program has ended" in (await judged("publisher", claim, "true")).broken
    assert "cannot be started" in (await judged("publisher", claim, "/no/such/program")).broken


@pytest.mark.needs("node", "rhea")
def test_the_command_on_the_page_judges_the_javascript_client() -> None:
    (block,) = blocks_of(PAGE)
    command = block.text.replace(".venv/bin/python", sys.executable)
    done = subprocess.run(
        shlex.split(command.replace("\\\n", " ")), cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1] == "3 of 3 claims hold", done.stdout + done.stderr


def test_the_page_lists_every_claim() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [claim for claims in SCENARIOS.values() for claim in claims if f"| {claim} |" not in text] == []


def test_the_command_prints_a_line_for_each_claim_and_fails_where_one_is_broken() -> None:
    kept = CliRunner().invoke(main, ["--publisher", command_of("python", "publisher"), "--only", "credit"])
    assert (kept.exit_code, kept.output) == (0, "holds   publisher: credit is kept\n1 of 1 claims hold\n")
    broken = CliRunner().invoke(main, ["--publisher", "false", "--only", "credit"])
    assert broken.exit_code == 1
    assert broken.output.startswith("BROKEN  publisher: credit is kept: the program has ended")
    assert CliRunner().invoke(main, []).exit_code == 2
