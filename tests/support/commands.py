"""Commands of `oncewire` as processes, from their start to their end."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

MAIN = "import sys; from oncewire.cli.main import main; sys.exit(main())"
END_S = 120.0
"""Seconds that no command needs."""


async def start(
    *arguments: str, program: str = MAIN, folder: Path | None = None, **environment: str
) -> asyncio.subprocess.Process:
    """Start a command, to whose standard input and from whose outputs there are pipes."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-c", program, *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=folder,
        env={**os.environ, **environment},
    )


async def finish(process: asyncio.subprocess.Process, text: str = "") -> tuple[int, str, str]:
    """What has become of a command that was given this text: exit code, standard output, standard error."""
    try:
        out, err = await asyncio.wait_for(process.communicate(text.encode()), END_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    assert b"Traceback" not in err, err.decode()
    return process.returncode, out.decode(), err.decode()


async def run(
    *arguments: str, text: str = "", program: str = MAIN, folder: Path | None = None, **environment: str
) -> tuple[int, str, str]:
    """Run a command to its end; see `finish`."""
    return await finish(await start(*arguments, program=program, folder=folder, **environment), text)
