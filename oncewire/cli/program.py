"""How a user calls this program: what is printed for typing must work when it is typed."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

NAME = "oncewire"


def name_as_typed() -> str:
    """`oncewire` where the shell finds this program by that name, else its path or its module as it was typed."""
    typed = Path(sys.argv[0])
    found = shutil.which(NAME)
    if typed.name == "__main__.py" and typed.parent.name == NAME and found is None:
        return f"{shlex.quote(sys.executable)} -m {NAME}"
    if typed.name != NAME or (found is not None and typed.exists() and typed.samefile(found)):
        return NAME
    return shlex.quote(sys.argv[0])
