"""Asks the Python of `warm_server.py` for a program, in place of a start of its own (`warm_start.py` says what for).

It is used by the process that runs tests, and by programs of tests that start others. It knows the standard library
only: a program must not find more than it would have imported itself.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SERVER = Path(__file__).with_name("warm_server.py")
START_S = 60.0
PR_SET_CHILD_SUBREAPER = 36
SPARE_FILE = 512
"""From here on files are put aside; below are those that programs get."""
MOST_FILES = 16
"""For one program: the three standard files, and those that its caller passes on."""
ROOM = 16_384
"""Bytes for the arguments of a program, and for its environment, where the system lists what exec was given."""
STARTS_OTHERS = re.compile(r"\b(chaos|demo|local|workers)\b|\bdemo[-_]")
"""In the arguments of programs that start Python programs; for another one, those start cold."""
cold_start = subprocess.Popen._execute_child  # type: ignore[attr-defined]  # typeshed leaves it out


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

    def continue_with(self, control: socket.socket, settings: Mapping[str, str]) -> None:
        """In a program that starts others: it has a Python of its own that forks, with these settings."""
        self._control, self._settings = control, settings
        self._control.settimeout(START_S)

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
                command = [sys.executable, "-P", str(SERVER), str(theirs.fileno()), " " * ROOM]
                environment = {**os.environ, "ONCEWIRE_WARM_ROOM": " " * ROOM}
                self._process = subprocess.Popen(
                    command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=environment
                )
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


def listed(words: Iterable[str | os.PathLike[str]]) -> bytes:
    """Arguments, or variables, as the system lists them."""
    return b"".join(os.fsencode(word) + b"\0" for word in words)


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
        and max(map(len, (listed(command), listed(f"{name}={wanted[name]}" for name in wanted)))) <= ROOM
        and WARM.has_settings(interpreter_settings(wanted))
    )
    if found is None or not is_plain or not WARM.is_wanted:
        cold_start(popen, *given)
        return
    is_safe, arguments = found
    request = {
        "command": [os.fspath(word) for word in command],
        "arguments": arguments,
        "is_safe": is_safe or "PYTHONSAFEPATH" in wanted,
        "starts_others": STARTS_OTHERS.search(" ".join(arguments)) is not None,
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
