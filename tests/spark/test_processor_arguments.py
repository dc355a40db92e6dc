"""What cannot be a processor is refused when it is described, before any query is started."""

from __future__ import annotations

from typing import Any

import pytest

from bridges.node.errors import BadRequest

NODE = {"bridge": "tcp://127.0.0.1:1", "bridge.secret": "sixteen-characters"}


@pytest.mark.needs("spark")
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"join": None}, "give join='zip'"),
        ({"join": "both"}, "there is no such join"),
        ({"name": "no/name"}, "sinkId"),
        ({"output": "a,b"}, "topic"),
        ({"options": {"sinkId": "s"}}, "it sets that itself"),
        ({"options": {"bridge": "tcp://127.0.0.1:1"}}, "bridge.secret"),
        ({"output": "a"}, "it is an input, too"),
        ({"error": "b"}, "it is an input, too"),
        ({"max_steps": 0}, "a batch has steps"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused_with_a_reason(change: dict[str, Any], why: str) -> None:
    from bridges.spark.processor import processor

    arguments: dict[str, Any] = {
        "inputs": ["a", "b"],
        "fn": lambda _: None,
        "output": "out",
        "join": "zip",
        "name": "p",
        "checkpoint": "checkpoint",
        "options": NODE,
        "tasks": 2,
    }
    assert processor(None, **arguments).step.output == "out"
    with pytest.raises(BadRequest, match=why):
        processor(None, **(arguments | change))
