"""Pytest plugin: Python programs that tests start are forked from a Python that has done their imports.

What a program is and does stays as it is: a process of its own with its own pid, files, environment and signals, and a
child of the test's process (`tests/support/warm_server.py`). Only the imports, nine tenths of what a short command
costs, are done once for all. `ONCEWIRE_WARM=0` starts each program as users do. A test whose subject is the start
itself, or what the system lists of a process, has the mark `cold`.

`subprocess.Popen`, and with it asyncio, starts a child in `_execute_child`: the one place that changes.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import MARK
from tests.support.warm_server import MOST_FILES, SPARE_FILE

SERVER = Path(__file__).with_name("warm_server.py")
VARIABLE = "ONCEWIRE_WARM"
START_S = 60.0
PR_SET_CHILD_SUBREAPER = 36
_cold_start = subprocess.Popen._execute_child  # type: ignore[attr-defined]  # typeshed leaves it out


@dataclass
class WarmPython:
    """The process that forks, started when it is first needed."""

    is_wanted: bool = True
    _process: subprocess.Popen[bytes] | None = None
    _control: socket.socket | None = None
    _settings: Mapping[str, str] | None = None
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def start(self, request: Mapping[str, Any], files: Sequence[int]) -> int:
        """The pid of the program, a child of this process."""
        with self._turn:
            control = self._connected()
            system = ctypes.CDLL(None)
            system.prctl(PR_SET_CHILD_SUBREAPER, 1)
            try:
                socket.send_fds(control, [json.dumps(request).encode()], list(files))
                return int(control.recv(32))
            finally:
                system.prctl(PR_SET_CHILD_SUBREAPER, 0)

    def has_settings(self, wanted: Mapping[str, str]) -> bool:
        """Whether a Python with these settings would behave as it does."""
        return wanted == (interpreter_settings(os.environ) if self._settings is None else self._settings)

    def stop(self) -> None:
        """End it; what it has forked lives on."""
        if self._process is not None and self._control is not None:
            self._control.close()
            self._process.wait(START_S)

    def _connected(self) -> socket.socket:
        if self._control is None:
            self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._control.settimeout(START_S)
            self._settings = interpreter_settings(os.environ)
            with theirs:
                command = [sys.executable, "-P", str(SERVER), str(theirs.fileno())]
                self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
            assert self._control.recv(32) == b"ready"
        return self._control


WARM = WarmPython()


def python_arguments(command: object) -> tuple[bool, list[str]] | None:
    """Of `python [-P] -m MODULE ...`, `-c PROGRAM ...` or `FILE ...`: whether -P is there, and the rest.

    The rest begins with `-m`, `-c` or, for a file, nothing. None = any other command.
    """
    if not isinstance(command, list | tuple) or len(command) < 2 or os.fspath(command[0]) != sys.executable:
        return None
    words = [os.fspath(word) for word in command[1:]]
    is_safe = words[0] == "-P"
    words = words[is_safe:]
    if words[:1] == [str(SERVER)]:
        return None  # what forks is not forked itself
    if len(words) > 1 and words[0] in {"-m", "-c"}:
        return is_safe, words
    return (is_safe, ["", *words]) if words and not words[0].startswith("-") else None


def interpreter_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """What a Python reads before its first line; a warm one has read it."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(("PYTHON", "LC_", "LD_")) or name == "LANG"
    }


def can_be_passed(files: Sequence[int]) -> bool:
    """Whether a warm program can get these beside its standard files."""
    return len(files) <= MOST_FILES - 3 and all(2 < file < SPARE_FILE for file in files)


def start_warm(popen: Any, *given: Any) -> None:
    """As `Popen._execute_child`, whose arguments these are."""
    (
        command,
        executable,
        preexec,
        close_fds,
        pass_fds,
        folder,
        environment,
        _startup,
        _flags,
        shell,
        theirs_in,
        ours_in,
        ours_out,
        theirs_out,
        ours_err,
        theirs_err,
        restore_signals,
        gid,
        gids,
        uid,
        umask,
        new_session,
        process_group,
    ) = given
    found = python_arguments(command)
    wanted = dict(os.environ if environment is None else environment)
    is_plain = (
        (shell, executable, preexec, close_fds) == (False, None, None, True)
        and (restore_signals, gid, gids, uid, umask) == (True, None, None, None, -1)
        and process_group in {-1, 0}
        and can_be_passed(pass_fds)
        and (folder is None or Path(folder).is_dir())
        and MARK not in wanted  # it is looked for in what exec was given
        and WARM.has_settings(interpreter_settings(wanted))
    )
    if found is None or not is_plain or not WARM.is_wanted:
        _cold_start(popen, *given)
        return
    is_safe, arguments = found
    request = {
        "arguments": arguments,
        "is_safe": is_safe or "PYTHONSAFEPATH" in wanted,
        "environment": wanted,
        "new_session": bool(new_session),
        "new_group": process_group == 0,
        "passed": list(pass_fds),
        "folder": str(Path.cwd() if folder is None else Path(folder).absolute()),
    }
    theirs = enumerate((theirs_in, theirs_out, theirs_err))
    popen.pid = WARM.start(request, [*(number if file == -1 else file for number, file in theirs), *pass_fds])
    popen._child_created = True
    popen._close_pipe_fds(theirs_in, ours_in, ours_out, theirs_out, ours_err, theirs_err)


@pytest.fixture(scope="session", autouse=True)
def warm_python() -> Iterator[None]:
    """Warm starts for all tests of this process."""
    if sys.platform != "linux" or os.environ.get(VARIABLE) == "0":
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "_execute_child", start_warm)
        yield
    WARM.stop()


@pytest.fixture(autouse=True)
def _cold(request: pytest.FixtureRequest) -> Iterator[None]:
    WARM.is_wanted = request.node.get_closest_marker("cold") is None
    yield
    WARM.is_wanted = True
