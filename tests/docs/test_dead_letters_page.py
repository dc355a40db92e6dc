"""docs/dead-letters.md: its rule and its snippet run, and its annotations are those of the code (I-3e)."""

from __future__ import annotations

import asyncio
import re
import tomllib
from pathlib import Path
from typing import Any

from delivery_records.model.limits import LETTER_ERROR_CHARS
from oncewire.client import connect
from oncewire.wire import vocabulary
from router.settings.config_loading import load
from tests.docs.code_blocks import ROOT, blocks_of
from tests.router.processes import running_router

PAGE = ROOT / "docs" / "dead-letters.md"
TEXT = PAGE.read_text(encoding="utf-8")


def block(language: str) -> str:
    (found,) = [each.text for each in blocks_of(PAGE) if each.language == language]
    return found


async def test_the_rule_and_the_snippet_of_the_page_bring_a_rejected_message_to_its_dead_letter_topic(
    tmp_path: Path,
) -> None:
    names: dict[str, Any] = {}
    exec(compile(block("python"), str(PAGE), "exec"), names)
    file = tmp_path / "router.toml"
    file.write_text("standalone = true\n" + block("toml"))
    async with running_router(f"--config={file}") as router, connect(router.url, container_id="shop") as shop:
        buried = asyncio.create_task(names["bury"](router.url))
        picky = await shop.subscriber("orders.eu", name="picky")
        publisher = await shop.publisher("orders.eu")
        sending = await publisher.submit(b"order 17")
        delivery = await picky.receive()
        await delivery.reject("no such article", "app:unknown")
        assert await buried == "b'order 17': rejected by shop/picky, app:unknown: no such article"
        assert (await sending).is_accepted


def test_the_rule_of_the_page_means_what_it_says(tmp_path: Path) -> None:
    assert tomllib.loads(block("toml"))
    file = tmp_path / "router.toml"
    file.write_text("standalone = true\n" + block("toml"))
    config = load(str(file), {}, {}).config
    policy = config.policy_of("orders.eu")
    assert (policy.dead_letter, policy.max_attempts) == ("dead.orders", 5)
    assert config.policy_of("dead.orders").is_dead_letter


def test_every_annotation_of_a_dead_letter_stands_on_the_page_and_no_other() -> None:
    prefix = vocabulary.DEAD_LETTER_PREFIX.decode()
    ours = {str(value) for name, value in vars(vocabulary).items() if name.startswith("DEAD_LETTER_")} - {
        str(vocabulary.DEAD_LETTER_PREFIX)
    }
    assert set(re.findall(rf"\| `({prefix}[a-z]+)` \|", TEXT)) == ours


def test_the_length_of_an_error_stands_on_the_page() -> None:
    assert f"cut to {LETTER_ERROR_CHARS} characters" in TEXT
