"""Demos as processes: a run to its end, and runs that are broken off."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

from tests.support.commands import MAIN
from tests.support.processes import assert_no_process_left, assert_nothing_left, start_marked

RUN_S = 900.0
"""Seconds that no run needs, on a machine that is busy with others, too."""


def run_to_its_end(folder: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    """What the JSON line of a run says, and standard error; nothing is left behind."""
    process, mark = start_marked(MAIN, folder, *arguments, "--json")
    out, err = process.communicate(timeout=RUN_S)
    assert process.returncode == 0, err
    (line,) = out.splitlines()
    assert_nothing_left(mark, folder)
    return json.loads(line), err


def break_off(folder: Path, number: signal.Signals, *arguments: str, line: str = "SIGKILL") -> None:
    """Sends a signal once a line begins like this. No process is left then, and no file where it can be helped."""
    process, mark = start_marked(MAIN, folder, *arguments)
    assert process.stdout is not None
    assert any(re.match(line, said) for said in process.stdout)
    process.send_signal(number)
    _, err = process.communicate(timeout=RUN_S)
    assert process.returncode == (-number if number == signal.SIGKILL else 130), err
    assert "Traceback" not in err
    if number == signal.SIGKILL:
        assert_no_process_left(mark)
    else:
        assert_nothing_left(mark, folder)
