"""Worker processes that end with the run, however it ends.

A worker gets tasks and gives answers over one socket pair. It runs in a process group of its own, so Ctrl-C reaches the
parent alone; when the parent is gone, the worker's next read or write fails and it ends.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

TaskT = TypeVar("TaskT")
AnswerT = TypeVar("AnswerT")

MAX_JOBS = 256
"""More processes than any machine this runs on has cores; a mistyped number shall not fill its memory."""
COLLECT_EVERY = 50_000
"""Objects between two runs of the garbage collector in a worker; with the interpreter's 700 they cost an eighth."""
END_S = 5.0
"""A worker that was asked to end and still runs after this is killed."""
_BOOT = "import sys; sys.path[:] = {path!r}\nfrom chaos.campaign.workers import serve; serve({fileno})"


class WorkerDied(Exception):
    """A worker process ended in the middle of a task.

    Attributes:
        task: what it was doing.
        code: its exit code, negative for a signal.
    """

    def __init__(self, task: object, code: int | None) -> None:
        super().__init__(f"worker ended with {code} at {task}")
        self.task = task
        self.code = code


def default_jobs() -> int:
    """The CPUs this process may use."""
    return min(len(os.sched_getaffinity(0)), MAX_JOBS)


class Workers(Generic[TaskT, AnswerT]):
    """Processes that each build their own copy of a function once, then answer tasks. Use as a context manager.

    Args:
        jobs: how many processes.
        make: called once in each of them; must be picklable, as must tasks and answers.
    """

    def __init__(self, jobs: int, make: Callable[[], Callable[[TaskT], AnswerT]]) -> None:
        self._processes: dict[Connection, subprocess.Popen[bytes]] = {}
        self._jobs = jobs
        self._make = make

    def __enter__(self) -> Self:
        """Start the processes."""
        try:
            for _ in range(self._jobs):
                self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End them, whatever they are doing."""
        self._end()

    def _start(self) -> None:
        ours, theirs = Pipe()
        with theirs:
            boot = _BOOT.format(path=sys.path, fileno=theirs.fileno())
            process = subprocess.Popen(
                [sys.executable, "-c", boot], pass_fds=[theirs.fileno()], process_group=0, stdin=subprocess.DEVNULL
            )
        self._processes[ours] = process
        ours.send(self._make)

    def _end(self) -> None:
        for connection, process in self._processes.items():
            connection.close()
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()

    def answers(self, tasks: Iterable[TaskT]) -> Iterator[tuple[TaskT, AnswerT]]:
        """Yield each task with its answer, in the order the answers come.

        Tasks are taken one by one, when a worker is free.

        Raises:
            WorkerDied: a worker ended although it had a task.
        """
        waiting = iter(tasks)
        busy: dict[Connection, TaskT] = {}
        for idle in self._processes:
            self._give(idle, waiting, busy)
        while busy:
            for ready in wait(list(busy)):
                assert isinstance(ready, Connection)
                connection: Connection = ready
                task = busy.pop(connection)
                try:
                    answer = connection.recv()
                except (EOFError, OSError):
                    raise WorkerDied(task, self._processes[connection].wait(END_S)) from None
                self._give(connection, waiting, busy)
                yield task, answer

    def _give(self, connection: Connection, waiting: Iterator[TaskT], busy: dict[Connection, TaskT]) -> None:
        for task in waiting:
            busy[connection] = task
            with suppress(OSError):  # a dead worker is found where its answer is awaited
                connection.send(task)
            return


def serve(fileno: int) -> None:
    """The worker's whole life."""
    gc.set_threshold(COLLECT_EVERY)
    with Connection(fileno) as connection, suppress(EOFError, OSError):
        work: Callable[[Any], Any] = connection.recv()()
        while True:
            connection.send(work(connection.recv()))
