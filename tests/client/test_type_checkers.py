"""What a type checker says of programs that use the Python API: pyright, as editors run it. mypy reads our own code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import oncewire
from tests.support.requirements import PROJECT, TOOLS

USES = PROJECT / "tests/client/typical_uses.py"
EXAMPLES = PROJECT / "examples"
INSTALLED = Path(oncewire.__file__).parents[1]
PYRIGHT = TOOLS / "node_modules/pyright/index.js"

pytestmark = [pytest.mark.needs("node", "pyright"), pytest.mark.slow]


def faults(folder: Path, read: Path, mode: str, *beside: Path) -> list[tuple[str, int, str]]:
    """What pyright finds in a file or folder: (file, line, message) of each error.

    `beside`: folders of scripts that import each other, which Python finds when it runs one.
    """
    configuration = folder / "pyrightconfig.json"
    configuration.write_text(
        json.dumps(
            {
                "include": [os.path.relpath(read, folder)],
                "extraPaths": [os.path.relpath(path, folder) for path in (INSTALLED, *beside)],
                "typeCheckingMode": mode,
            }
        )
    )
    command = ["node", str(PYRIGHT), "--project", str(configuration), "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=200)
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] > 0
    return [
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1, each["message"])
        for each in found["generalDiagnostics"]
        if each["severity"] == "error"
    ]


def test_typical_uses_have_no_fault_in_strict_mode(tmp_path: Path) -> None:
    assert faults(tmp_path, USES, "strict") == []


@pytest.mark.needs("fastapi", "proton", "psycopg", "spark")
def test_the_examples_have_no_fault(tmp_path: Path) -> None:
    assert faults(tmp_path, EXAMPLES, "standard", EXAMPLES, EXAMPLES / "shop") == []


def test_a_wrong_use_is_found(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "from oncewire.client import connect\n"
        "async def wrong() -> None:\n"
        "    async with connect('amqp://127.0.0.1') as client, client.publisher('orders') as publisher:\n"
        "        await publisher.sends(b'x')\n"
        "        await publisher.send(7)\n"
        "        await client.subscriber('orders', prefetch='many')\n"
    )
    assert [line for _, line, _ in faults(tmp_path, wrong, "standard")] == [4, 5, 6]
