"""The console script `oncewire`.

This file must be readable for every Python 3, so that one that is too old gets a sentence and no SyntaxError.
"""

import sys

from oncewire.cli.python_check import require_new_python


def main():  # type: ignore[no-untyped-def]  # old Pythons must be able to read this line
    """Checks the Python, then runs the sub-command named on the command line and exits with its code."""
    require_new_python()
    from oncewire.cli.run import run

    sys.exit(run(sys.argv[1:]))
