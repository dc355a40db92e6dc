"""Run seeds in worker processes and sum them up: the same totals whatever the number of processes."""

from __future__ import annotations

import resource
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType

from chaos.campaign.tally import Tally, sum_up
from chaos.campaign.workers import Workers
from chaos.simulator.cores import SHIPPED, Cores
from chaos.simulator.coverage import missed
from chaos.simulator.schedule import run_seed
from chaos.simulator.violation import Violation

CHUNK = 10
"""Seeds a worker runs before it reports: a fraction of a second. Fixed, so that sums do not depend on the processes."""
MAX_SEED_CPU_S = 120.0
"""CPU seconds of one seed, of which a healthy one takes a hundredth: beyond this a core loops for ever."""


@dataclass(frozen=True, slots=True)
class Seeds:
    """Neighbouring seeds."""

    first: int
    count: int

    def __str__(self) -> str:
        """As people write it."""
        return f"seed {self.first}" if self.count == 1 else f"seeds {self.first} to {self.last}"

    @property
    def last(self) -> int:
        """The last one."""
        return self.first + self.count - 1

    def chunks(self) -> Iterator[Seeds]:
        """The same seeds in pieces of CHUNK."""
        for first in range(self.first, self.first + self.count, CHUNK):
            yield Seeds(first, min(CHUNK, self.first + self.count - first))


def shipped() -> Cores:
    """The cores that routers and clients run on."""
    return SHIPPED


@dataclass(frozen=True, slots=True)
class SeedOutcome:
    """What a run of seeds gave."""

    tally: Tally
    is_interrupted: bool = False
    """Ctrl-C came; the tally has what was done by then."""


def run_seeds(
    seeds: Seeds,
    jobs: int,
    make_cores: Callable[[], Cores] = shipped,
    on_progress: Callable[[int, int], None] | None = None,
) -> SeedOutcome:
    """Run all seeds; Ctrl-C ends the workers and keeps what was done.

    Args:
        seeds: which.
        jobs: how many worker processes.
        make_cores: called in each worker; picklable. Other cores than the shipped ones are for tests and mutants.
        on_progress: called with the seeds done and the failing ones among them.

    Raises:
        WorkerDied: a worker process was killed from outside.
    """
    done: dict[int, Tally] = {}
    count = failing = 0
    is_interrupted = False
    try:
        with Workers[Seeds, Tally](jobs, _Worker(make_cores)) as workers:
            for chunk, tally in workers.answers(seeds.chunks()):
                done[chunk.first] = tally
                count += tally.seeds
                failing += tally.found.total()
                if on_progress is not None:
                    on_progress(count, failing)
    except KeyboardInterrupt:
        is_interrupted = True
    total = sum_up(tally for _, tally in sorted(done.items()))
    total.coverage.update(dict.fromkeys(missed(total.coverage), 0))  # said here: other code has other situations
    return SeedOutcome(total, is_interrupted)


@dataclass(frozen=True, slots=True)
class _Worker:
    """What a worker process gets at its start."""

    make_cores: Callable[[], Cores]

    def __call__(self) -> Callable[[Seeds], Tally]:
        cores = self.make_cores()
        limit_cpu_of_a_seed()
        return lambda seeds: run_chunk(seeds, cores)


def run_chunk(seeds: Seeds, cores: Cores) -> Tally:
    """Run seeds one after the other in this process."""
    tally = Tally()
    started = time.process_time()
    for seed in range(seeds.first, seeds.first + seeds.count):
        restart_seed_limit()
        tally.add(run_seed(seed, cores))
    tally.cpu_s = time.process_time() - started
    tally.memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return tally


def limit_cpu_of_a_seed() -> None:
    """From here on a seed that takes more than MAX_SEED_CPU_S ends as stuck. For worker processes."""

    def too_long(number: int, frame: FrameType | None) -> None:
        raise Violation(f"BLOCKED: the run took more than {MAX_SEED_CPU_S:.0f} s of CPU")

    signal.signal(signal.SIGPROF, too_long)


def restart_seed_limit() -> None:
    """A new seed begins."""
    signal.setitimer(signal.ITIMER_PROF, MAX_SEED_CPU_S)
