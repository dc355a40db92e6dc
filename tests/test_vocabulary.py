"""The names this network adds to AMQP are spelled in `oncewire/wire/vocabulary.py` and nowhere else in the product."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncewire.wire import Symbol, vocabulary

PROJECT = Path(__file__).resolve().parents[1]
# `delivery_records` imports no other package (CONTRIBUTING): what it puts into the info of an error is its own.
FOLDERS = ("oncewire", "topology", "router", "bridges", "pyspark_oncewire", "chaos", "benchmarks")
VOCABULARY = "oncewire/wire/vocabulary.py"
NAME = re.compile(
    r"x-opt-(topic|router|partition|delivery|queue)-[a-z-]*|topic-[a-z]+-[a-z-]+|oncewire-(inter-router|service|routed-links)|failover-server-list"
)


def spelled(source: str) -> Iterator[tuple[int, str]]:
    """Yields line and text of each string or bytes that is such a name; a text that mentions one is none."""
    if not NAME.search(source):
        return  # few files are worth parsing
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            text = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
            if NAME.fullmatch(text):
                yield node.lineno, text


def test_no_other_file_of_the_product_spells_a_name() -> None:
    found = [
        f"{path}:{line}: {text}"
        for folder in FOLDERS
        for file in sorted((PROJECT / folder).rglob("*.py"))
        if (path := file.relative_to(PROJECT).as_posix()) != VOCABULARY
        for line, text in spelled(file.read_text("utf-8"))
    ]
    assert found == []


def test_each_name_has_one_constant() -> None:
    names = Counter(value for value in vars(vocabulary).values() if isinstance(value, Symbol))
    assert [name for name, count in names.items() if count > 1] == []
    assert {text for _, text in spelled((PROJECT / VOCABULARY).read_text("utf-8"))} <= {
        *names,
        vocabulary.TOPIC_PREFIX.decode(),
        vocabulary.ROUTER_PREFIX,
    }


@pytest.mark.parametrize(
    "statement",
    ['ECHO = Symbol("x-opt-topic-echo")', 'KEY = b"x-opt-topic-seq"', 'if "topic-exactly-once" in offered: pass'],
)
def test_a_planted_name_is_found(statement: str) -> None:
    assert list(spelled(statement)) != []


def test_a_text_that_mentions_a_name_is_none() -> None:
    assert list(spelled('raise ValueError("x-opt-topic-ask names a tag of more than 32 bytes")')) == []
