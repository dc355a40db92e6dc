"""A program of the cluster: `python -m chaos.experiments.spark_demo.cluster_child COMMAND...`, started by cluster.py.

Spark's own programs outlive whoever started them. This one stays beside its own, and ends it, with the executors that
it has started, when the experiment is gone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading

from chaos.experiments.spark_demo.sessions import kill_session


def _end_with_the_experiment() -> None:
    # Not through sys.stdin: a thread that waits in it would keep the interpreter from its end.
    os.read(0, 1)
    kill_session(os.getsid(0), spared=os.getpid())
    os._exit(1)


def main() -> None:
    """Run the command to its end."""
    threading.Thread(target=_end_with_the_experiment, daemon=True).start()
    sys.exit(subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, check=False).returncode)


if __name__ == "__main__":
    main()
