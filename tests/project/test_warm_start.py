"""Programs that tests start warm (`tests/support/warm_start.py`) are what a cold start would give."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.support.processes import MARK, assert_no_process_left, left_behind
from tests.support.warm_client import WARM, python_arguments, start_warm

NOTIFY = """
import json, os, signal, sys, tempfile, threading
print(json.dumps({
    "argv": sys.argv, "main": __name__, "folder": os.getcwd(), "environment": dict(os.environ), "parent": os.getppid(),
    "own session": os.getsid(0) == os.getpid(), "stdin": sys.stdin.read(), "temporary": tempfile.gettempdir(),
    "ctrl-c": signal.getsignal(signal.SIGINT) is signal.default_int_handler, "threads": threading.active_count(),
    "files": sorted(int(name) for name in os.listdir("/proc/self/fd"))[:3], "path": sys.path,
    "terminal": [os.isatty(file) for file in (0, 1, 2)],
    "arguments": open("/proc/self/cmdline").read().rstrip("\\0").split("\\0"),
    "variables": sorted(open("/proc/self/environ").read().rstrip("\\0").split("\\0")),
    "lines": [(file.line_buffering, file.write_through, file.encoding) for file in (sys.stdout, sys.stderr)],
}))
print("words", file=sys.stderr)
sys.exit(7)
"""
IS_WARM = "import sys; print('bridges.workqueue.cli' in sys.modules)"


def run(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=60, **options
    )


def both(*arguments: str, **options: object) -> list[subprocess.CompletedProcess[str]]:
    """A warm and a cold start of the same."""
    warm = run(*arguments, **options)
    WARM.is_wanted = False
    cold = run(*arguments, **options)
    WARM.is_wanted = True
    return [warm, cold]


@pytest.fixture(autouse=True)
def _also_in_a_run_of_cold_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess.Popen, "_execute_child", start_warm)


@pytest.mark.parametrize("kind", ["-c", "file", "-m"])
@pytest.mark.parametrize("options", [("-P",), ()])
def test_a_warm_program_has_what_a_cold_one_has(kind: str, options: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "telling.py").write_text(NOTIFY)
    program = {"-c": ("-c", NOTIFY), "file": (str(tmp_path / "telling.py"),), "-m": ("-m", "telling")}[kind]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "FURTHER": "ü"}
    found = both(*options, *program, "a", "b c", input="in", cwd=tmp_path, env=environment, start_new_session=True)
    if kind == "-m" and (options or "PYTHONSAFEPATH" in os.environ):
        assert [one.returncode for one in found] == [1, 1]  # the folder is not on the path
        return
    warm, cold = (json.loads(one.stdout) for one in found)
    assert warm == cold
    assert [(one.returncode, one.stderr) for one in found] == [(7, "words\n")] * 2
    assert warm["parent"] == os.getpid()


def test_it_is_warm_but_where_that_would_show() -> None:
    assert [one.stdout for one in both("-P", "-c", IS_WARM)] == ["True\n", "False\n"]
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    assert run("-P", "-c", IS_WARM, env=environment).stdout == "False\n"
    assert run("-P", "-W", "error", "-c", IS_WARM).stdout == "False\n"
    assert python_arguments(["sh", "-c", "true"]) is None


def test_a_warm_program_is_killed_and_stopped_as_any_other() -> None:
    with subprocess.Popen([sys.executable, "-P", "-c", "input()"], stdin=subprocess.PIPE) as waiting:
        assert waiting.poll() is None
        waiting.send_signal(signal.SIGSTOP)
        assert os.WIFSTOPPED(os.waitpid(waiting.pid, os.WUNTRACED)[1])
        waiting.kill()
        assert waiting.wait(60) == -signal.SIGKILL


PASSED = """
import os, sys
listed = os.listdir("/proc/self/fd")
print(os.getpgid(0) == os.getpid(), sorted(int(name) for name in listed if os.path.exists(f"/proc/self/fd/{name}")))
for file in map(int, sys.argv[1:]):
    os.write(file, b"through %d" % file)
"""


def test_a_warm_program_gets_the_files_that_are_passed_and_a_group_as_a_cold_one_does() -> None:
    (read, write), (other_read, other_write) = os.pipe(), os.pipe()
    high = fcntl.fcntl(other_write, fcntl.F_DUPFD, 100)
    files = [high, write]  # in any order
    given = ["-P", "-c", PASSED, *map(str, files)]
    warm, cold = both(*given, pass_fds=files, process_group=0)
    assert (warm.stdout, warm.stderr, warm.returncode) == (cold.stdout, cold.stderr, 0)
    assert warm.stdout == f"True {[0, 1, 2, write, high]}\n"
    assert os.read(read, 100) == b"through %d" % write * 2
    assert os.read(other_read, 100) == b"through %d" % high * 2
    for file in (read, write, other_read, other_write, high):
        os.close(file)


ENDING = """
import atexit, sys, threading, time
atexit.register(print, "at the end")
print("words", end="")
threading.Thread(target=lambda: (time.sleep(0.1), print("thread"))).start()
"""


@pytest.mark.parametrize(
    "end", ["", "sys.exit()", "sys.exit(300)", "sys.exit('why')", "raise KeyboardInterrupt", "1 / 0"]
)
def test_a_warm_program_ends_as_a_cold_one_does(end: str) -> None:
    warm, cold = both("-P", "-c", ENDING + end)
    assert (warm.stdout, warm.returncode) == (cold.stdout, cold.returncode)
    assert warm.stderr.splitlines()[-1:] == cold.stderr.splitlines()[-1:]


def test_an_error_of_a_warm_program_is_exit_code_1_and_said_on_stderr() -> None:
    warm, cold = both("-P", "-c", "raise LookupError('gone')")
    assert (warm.returncode, cold.returncode) == (1, 1)
    assert warm.stderr.endswith("LookupError: gone\n")


OTHERS = """
import os, subprocess, sys
inner = "import os, sys; print('bridges.workqueue.cli' in sys.modules, os.getppid(), flush=True); sys.stdin.read()"
pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
other = subprocess.Popen([sys.executable, "-P", "-c", inner], text=True, **pipes)
print(os.getpid(), other.stdout.readline(), end="", flush=True)
sys.stdin.read()
os.kill(os.getpid(), 9)
"""


def test_a_warm_program_that_starts_others_starts_them_warm_and_both_are_found_by_their_mark() -> None:
    mark = uuid.uuid4().hex
    command = [sys.executable, "-P", "-c", OTHERS, "demo"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env={**os.environ, MARK: mark}, text=True, **pipes) as program:  # type: ignore[call-overload]
        assert program.stdout.readline().split() == [str(program.pid), "True", str(program.pid)]
        assert len(left_behind(mark)) == 2
        assert program.communicate()[0] == ""
    assert program.returncode == -signal.SIGKILL
    assert_no_process_left(mark)
