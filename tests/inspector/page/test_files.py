"""What the router sends to a browser: a fixed set of files, under a policy that lets nothing else run."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from delivery_records.diagnostics.waits import Holder, Reason
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.publisher.phase import Phase
from tests.router.processes import RouterProcess, running_router
from topology.inspector.page.serving import FOLDER, LOGIN, PAGE, POLICY, SCHEMA
from topology.inspector.schema.catalogue import page_module
from topology.inspector.schema.states import REASONS, WORDS

in_one_loop = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def router() -> AsyncIterator[RouterProcess]:
    async with running_router("--standalone") as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def session(router: RouterProcess) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(router.http) as found:
        yield found


def test_no_name_can_look_like_another_one_on_the_page() -> None:
    """What turns a text around or takes no place stands there as its number, in all texts that are put on the page."""
    found = re.search(r"const UNSEEN = /(\[.*\])/g;", (FOLDER / "dom.js").read_text())
    assert found is not None
    unseen = re.compile(found[1])
    for each in (0, 0x1B, 0x7F, 0x9B, 0xAD, 0x61C, 0x200B, 0x200E, 0x202A, 0x202E, 0x2060, 0x2066, 0x2069, 0xFEFF):
        assert unseen.fullmatch(chr(each)), hex(each)
    assert not unseen.search("Orders\n\tÄrger \u05d0\u0628\u6f22 !~")
    dom = (FOLDER / "dom.js").read_text()
    assert "element.append(child instanceof Node ? child : seen(child))" in dom
    assert "element.textContent = shown" in dom
    raw = re.compile(r"innerHTML|insertAdjacent|document\.write|createTextNode|innerText")
    assert [path.name for path in FOLDER.glob("*.js") if raw.search(path.read_text())] == []


@pytest.mark.parametrize(
    "path", ["/", "/inspector", *(f"/inspector/{name}" for name in ("main.js", "tokens.css", "schema.js", "none.js"))]
)
@in_one_loop
async def test_every_answer_has_the_policy(session: aiohttp.ClientSession, path: str) -> None:
    async with session.get(path) as answer:
        assert answer.headers["Content-Security-Policy"] == POLICY
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.status == (404 if "none" in path else 200)


def test_the_policy_lets_no_inline_code_and_no_other_site_in() -> None:
    assert "unsafe" not in POLICY
    assert "http" not in POLICY
    assert "require-trusted-types-for 'script'" in POLICY


def test_the_page_holds_no_inline_code_or_style() -> None:
    page = (FOLDER / PAGE).read_text(encoding="utf-8")
    assert not re.search(r"<script(?![^>]*\bsrc=)", page)
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", page)


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.js")), ids=lambda file: file.name)
def test_no_module_parses_text_as_html_or_names_another_site(file: Path) -> None:
    source = file.read_text(encoding="utf-8")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", source)
    assert set(re.findall(r"https?://[^\"\s]*", source)) <= {"http://www.w3.org/2000/svg"}
    assert all(path.startswith("./") for path in re.findall(r"^import .* from \"([^\"]+)\"", source, re.MULTILINE))


def test_every_name_that_a_module_imports_is_exported_by_the_other() -> None:
    sources = {file.name: file.read_text(encoding="utf-8") for file in FOLDER.glob("*.js")} | {SCHEMA: page_module()}
    exports = {
        name: set(re.findall(r"^export (?:async )?(?:function|class|const|let) (\w+)", text, re.MULTILINE))
        for name, text in sources.items()
    }
    for name, text in sources.items():
        for names, module in re.findall(r"^import \{([^}]*)\} from \"\./(\w+\.js)\"", text, re.MULTILINE):
            wanted = {each.strip() for each in names.split(",")} - {""}
            assert wanted <= exports[module], (name, module)
            assert all(len(re.findall(rf"\b{each}\b", text)) > 1 for each in wanted), (name, wanted)


def test_page_and_command_line_have_one_word_for_every_state_and_reason_that_routers_report() -> None:
    outcomes = (DeliveryOutcome.ACCEPTED, DeliveryOutcome.REJECTED)
    assert {state.value for state in (*Holder, *Phase, *outcomes)} <= WORDS.keys()
    assert {reason.value for reason in Reason} == REASONS.keys()
    assert {"unreachable", "underway", "provisional", "serving", "draining", "leaving", "up", "one-way"} <= WORDS.keys()
    sources = "".join(file.read_text(encoding="utf-8") for file in FOLDER.glob("*.js"))
    named = re.findall(r'WORDS(?:\.(\w+)|\["([\w-]+)"\])', sources)
    assert {one or other for one, other in named} <= WORDS.keys()


@pytest.mark.parametrize(
    "path", ["../serving.py", "..%2fserving.py", "%2e%2e/serving.py", "vendor/cytoscape.LICENSE.txt"]
)
@in_one_loop
async def test_nothing_but_files_of_the_page_is_served(session: aiohttp.ClientSession, path: str) -> None:
    async with session.get(f"/inspector/{path}", allow_redirects=False) as answer:
        assert answer.status == 404
        assert "import" not in await answer.text()


@in_one_loop
async def test_a_file_that_has_not_changed_is_not_sent_again(session: aiohttp.ClientSession) -> None:
    async with session.get("/inspector/main.js") as first:
        assert first.headers["Content-Encoding"] == "gzip"
        assert first.content_type == "text/javascript"
        tag = first.headers["ETag"]
    async with session.get("/inspector/main.js", headers={"If-None-Match": tag}) as second:
        assert (second.status, await second.read()) == (304, b"")


@in_one_loop
async def test_logging_in_leads_back_to_the_page_and_is_asked_of_those_who_only_look(
    session: aiohttp.ClientSession,
) -> None:
    async with session.get(LOGIN, allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (303, "/")
    users = ("--users=ada:secret,eve:secret", "--roles=ada=operator", "--http-loopback-role=viewer")
    async with running_router("--standalone", *users) as router, aiohttp.ClientSession(router.http) as looking:
        async with looking.get("/") as page:
            assert page.status == 200
        async with looking.get(LOGIN, allow_redirects=False) as refused:
            assert refused.status == 401
            assert refused.headers["WWW-Authenticate"].startswith("Basic")
        small = {"Authorization": "Basic " + b64encode(b"eve:secret").decode()}
        async with looking.get(LOGIN, headers=small, allow_redirects=False) as refused:
            assert refused.status == 401
            assert (await refused.json())["error"] == "this needs the role operator; eve is viewer"
        login = {"Authorization": "Basic " + b64encode(b"ada:secret").decode()}
        async with looking.get(LOGIN, headers=login, allow_redirects=False) as answer:
            assert answer.status == 303
