"""One thread that runs the jobs of many tasks in a store, in groups: one durable write serves all that wait for it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from oncewire.store.errors import StoreUnreachable, closed_store
from oncewire.store.merging_core import Merge
from oncewire.store.store import Job, Store

GROUP_COUNT = 256
"""Jobs of one transaction: by then the durable write costs each of them next to nothing."""


class GroupCommit:
    """Runs jobs in the store's own thread.

    Args:
        store: used by the thread from now on.
        merge: makes fewer jobs of a group.
        on_touched: called in the thread with names whose waiters should look.
        on_finished: called in the thread when all futures of a group are done: their waiters wake up together, and what
            they do next is one group again.
    """

    def __init__(
        self, store: Store, merge: Merge, on_touched: Callable[[frozenset[str]], None], on_finished: Callable[[], None]
    ) -> None:
        self._store = store
        self._merge = merge
        self._on_touched = on_touched
        self._on_finished = on_finished
        self._submitting = threading.Lock()
        self._is_closed = False
        self._jobs: queue.SimpleQueue[tuple[Job, Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="store", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> Future[Any]:
        """Run a job soon; jobs run in the order of `merge`. The future is done when it is durable.

        A cancelled job may be left out.

        Raises:
            StoreUnreachable: it was closed, perhaps by another thread a moment ago: nobody would run the job.
        """
        future: Future[Any] = Future()
        with self._submitting:
            if self._is_closed:
                raise closed_store()
            self._jobs.put((job, future))
        return future

    def close(self) -> None:
        """Finish what was submitted, and end the thread."""
        with self._submitting:
            self._is_closed = True
            self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        ends = False
        while not ends:
            group, ends = self._next_group()
            if group:
                self._run(group)

    def _next_group(self) -> tuple[list[tuple[Job, Future[Any]]], bool]:
        """Wait for a job, and take all others that came meanwhile. While a group is written, the next one gathers."""
        group: list[tuple[Job, Future[Any]]] = []
        entry = self._jobs.get()
        while entry is not None:
            if entry[1].set_running_or_notify_cancel():
                group.append(entry)
            if len(group) == GROUP_COUNT:
                return group, False
            try:
                entry = self._jobs.get_nowait()
            except queue.Empty:
                return group, False
        return group, True

    def _run(self, group: list[tuple[Job, Future[Any]]]) -> None:
        try:
            merged = self._merge([job for job, _ in group])
            found, touched = self._store.transact([each.job for each in merged])
        except BaseException as error:  # noqa: BLE001  # it belongs to the caller of the job
            if len(group) == 1 or isinstance(error, StoreUnreachable):
                # A connection that broke at the commit: whether it happened is not known, so nothing is done again.
                for _, future in group:
                    future.set_exception(error)
                self._on_finished()
                return
            # W-1: nothing has happened. The one that fails must not fail the others, so each runs alone.
            for entry in group:
                self._run([entry])
            return
        if touched:
            self._store.announce(touched)
            self._on_touched(touched)
        results: list[Any] = [None] * len(group)
        for each, result in zip(merged, found, strict=True):
            each.spread(result, results)
        for (_, future), result in zip(group, results, strict=True):
            future.set_result(result)
        self._on_finished()
