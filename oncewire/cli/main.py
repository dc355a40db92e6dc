"""The console script `oncewire`.

It imports the rest only after the check, so that a Python that is too old gets a sentence and no traceback.
"""

from __future__ import annotations

import sys

from oncewire.cli.python_check import require_new_python


def main() -> None:
    """Checks the Python, then runs the sub-command named on the command line and exits with its code."""
    require_new_python(tuple(sys.version_info[:2]))
    from oncewire.cli.run import run

    sys.exit(run(sys.argv[1:]))
