"""Whether a program answers what its OpenAPI description says: Schemathesis makes valid and invalid requests of it."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
    "negative_data_rejection",
)
EXAMPLES = 6
"""For each operation and phase."""
END_S = 100.0


async def check_answers(url: str, left_out: str, folder: Path) -> None:
    """Send requests made of the description at a URL; fails with what was answered otherwise.

    Args:
        url: of the description.
        left_out: a regular expression of paths that end the program, or take too long.
        folder: for the tool's files.
    """
    found = await asyncio.create_subprocess_exec(
        Path(sys.prefix) / "bin" / "st",
        "--no-color",
        "run",
        url,
        "--seed",
        "1",
        "--checks",
        ",".join(CHECKS),
        "--max-examples",
        str(EXAMPLES),
        "--phases",
        "examples,coverage,fuzzing",
        "--exclude-path-regex",
        left_out,
        "--continue-on-failure",
        "--workers",
        "1",
        "--no-shrink",
        "--generation-database",
        "none",
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "HYPOTHESIS_STORAGE_DIRECTORY": str(folder)},
    )
    try:
        async with asyncio.timeout(END_S):
            said, _ = await found.communicate()
    finally:
        if found.returncode is None:
            found.kill()
    assert found.returncode == 0, said.decode()[-6000:]
