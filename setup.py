"""The compiled build: mypyc turns the cores into extension modules; and the library that draws the inspector's map.

All else about the package is in pyproject.toml.

    ONCEWIRE_COMPILED=1 pip install .       compiled; where that fails, a warning and a pure install
    pip install .                           pure Python

ONCEWIRE_OPTIMIZE is the C compiler's level (-O), 1 unless set. ONCEWIRE_MAP=0 leaves the map's library out.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

MAP_FOLDER = "topology/inspector/page/files/vendor"
FETCH_MAP = "scripts/fetch_map_library.sh"
MAP_LIMIT_S = 120
"""An installation without a network goes on without the map."""
IS_COMPILED = os.environ.get("ONCEWIRE_COMPILED") == "1"
TRANSLATOR = "mypy[mypyc]>=2.4,<2.5"
# Each unit is one shared library: calls inside it are C calls. Of router and client it is what each message passes
# through, but for a subscriber's core: mutants of the one that finds copies, which run as Python, inherit from it.
UNITS = {
    "oncewire.compiled": [
        "oncewire/wire",
        *(f"oncewire/transport/{name}.py" for name in ("engine_protocol", "paced_protocol", "turn", "turns_core")),
        *(f"oncewire/client/{name}.py" for name in ("map_entry", "publisher_core", "sending")),
    ],
    "delivery_records.compiled": ["delivery_records"],
    "router.compiled": [
        "router/amqp/offers.py",
        "router/records_driver.py",
        "router/process/later_effects.py",
        *(
            f"router/clients/{name}.py"
            for name in (
                "client_quota",
                "connection",
                "delivery_states",
                "message_edits",
                "places",
                "publisher_link",
                "session_window",
                "subscriber_link",
                "user_bytes",
            )
        ),
        *(f"router/peers/{name}.py" for name in ("connection", "neighbours", "output")),
    ],
}
PURE = {
    # Classes that inherit from `str`, `int` or `bytes`, which mypyc cannot translate, and logins.
    *(f"oncewire/wire/{name}.py" for name in ("types", "message", "sasl", "scram", "saslprep", "bearer")),
    # No message passes through these: translating and compiling them would take a quarter of the time.
    *(
        f"oncewire/wire/{name}.py"
        for name in ("codec", "json_values", "large_attach", "map_parts", "negotiation", "transactions")
    ),
    *(
        f"delivery_records/attachments/{name}.py"
        for name in (
            "attaching",
            "attempt",
            "barrier",
            "closing",
            "departing",
            "draining",
            "ending",
            "expiry",
            "refusals",
            "session_order",
            "steals",
            "wanted",
            "watch/publishers",
            "watch/routers",
            "watch/shared",
            "watch/subscriptions",
            "watch/watch_handlers",
            "watch/watch_parts",
        )
    ),
    *(f"delivery_records/model/{name}.py" for name in ("durations", "failures", "proposals")),
    *(f"delivery_records/diagnostics/{name}.py" for name in ("lateness", "lookup", "tables", "waits")),
}


def files_of(places: list[str]) -> list[str]:
    """The files of one unit. Packages' own files stay Python: importing a package must not load its unit."""
    found = (file for place in map(Path, places) for file in (place.rglob("*.py") if place.is_dir() else [place]))
    return sorted(str(file) for file in found if file.name != "__init__.py" and str(file) not in PURE)


@functools.cache
def translated() -> list[Extension]:
    """The extension modules; their C files are written on the first call, which takes ten seconds."""
    from mypyc.build import mypycify

    shutil.rmtree("build/mypy", ignore_errors=True)  # mypyc 2.4 crashes on what it has kept of changed files
    units = [(files_of(places), name) for name, places in UNITS.items()]
    # The settings of `make lint` are left out: what is not installed here is `Any`, and warnings are its business.
    options = ["--config-file=", "--explicit-package-bases", "--ignore-missing-imports", "--cache-dir=build/mypy"]
    return mypycify(
        [*options, *(file for files, _ in units for file in files)],
        separate=units,
        opt_level=os.environ.get("ONCEWIRE_OPTIMIZE", "1"),
        debug_level="0",
        target_dir="build/mypyc",
    )


class BuildWithMap(build_py):
    """Fetch the library of the inspector's map, where it is not there yet: `pip install .` gets what `make` gets."""

    def finalize_options(self) -> None:
        """Before setuptools lists the files of the package."""
        is_wanted = os.environ.get("ONCEWIRE_MAP") != "0" and not self.editable_mode
        if is_wanted and not (Path(MAP_FOLDER) / "version.txt").exists():
            try:
                done = subprocess.run(["sh", FETCH_MAP, MAP_FOLDER, sys.executable], check=False, timeout=MAP_LIMIT_S)
                is_there = done.returncode == 0
            except (OSError, subprocess.TimeoutExpired):
                is_there = False
            if not is_there:
                sys.stderr.write("warning: the inspector's page will have no map: its library could not be fetched\n")
        super().finalize_options()


class BuildAllOrNothing(build_ext):
    """Build every extension, or none: half of a unit cannot be imported."""

    def finalize_options(self) -> None:
        """Translate now, not whenever setuptools only reads the package's description."""
        try:
            self.distribution.ext_modules = translated()
        except (Exception, SystemExit) as error:  # noqa: BLE001  (mypyc crashes, or ends the process at an error)
            self._leave_out(error)
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def run(self) -> None:
        """Compile."""
        try:
            super().run()
        except Exception as error:  # noqa: BLE001  (setuptools has several families of errors)
            for path in self.get_outputs():
                Path(path).unlink(missing_ok=True)
            self._leave_out(error)

    def _leave_out(self, error: BaseException) -> None:
        self.extensions = self.distribution.ext_modules = []
        reason = str(error).strip().partition("\n")[0]
        sys.stderr.write(f"warning: Oncewire is installed without its compiled modules: {reason}\n")


if IS_COMPILED:
    setup(
        setup_requires=[TRANSLATOR],
        # Stands for those that are translated later, so that setuptools knows that there are some.
        ext_modules=[Extension("oncewire.compiled__mypyc", [])],
        cmdclass={"build_ext": BuildAllOrNothing, "build_py": BuildWithMap},
    )
else:
    setup(cmdclass={"build_py": BuildWithMap})
