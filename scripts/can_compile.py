"""Exits with 0 where a compiled build can be tried: a C compiler, Python.h of this Python, and no ONCEWIRE_PURE=1."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path


def can_compile() -> bool:
    """Whether what a compiler needs is here; whether it succeeds is seen when it runs."""
    if os.environ.get("ONCEWIRE_PURE") == "1":
        return False
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    return bool(shutil.which(compiler[0])) and Path(sysconfig.get_path("include"), "Python.h").exists()


if __name__ == "__main__":
    sys.exit(not can_compile())
