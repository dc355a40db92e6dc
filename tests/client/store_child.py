"""A consumer process that kills itself with SIGKILL at a named point.

    python store_child.py KIND ADDRESS NAME SOURCE TARGET SEED POINT

It reads on for ever; with `-` as POINT it lives until another kills it.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from tests.client.store_world import Consumer, Database, FileTopic

IDLE_S = 0.02


def main() -> None:
    kind, address, name, source, target, seed, deadly = sys.argv[1:]

    def reach(point: str) -> None:
        if point == deadly:
            os.kill(os.getpid(), signal.SIGKILL)

    consumer = Consumer(
        Database(kind, address), name, FileTopic(Path(source)), FileTopic(Path(target), int(seed)), reach
    )
    while True:
        if not consumer.step(3):
            time.sleep(IDLE_S)


if __name__ == "__main__":
    main()
