"""Java is found, or the packaged one is made usable, without anybody doing anything."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from bridges.node.errors import BadRequest
from bridges.spark.java import check_spark, find_java, java_version, make_shim, packaged_java
from bridges.spark.worker_python import make_wrapper, zips_in_front


def fake_java(folder: Path, version: str, code: int = 0) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025' >&2\nexit {code}\n")
    java.chmod(0o755)
    return java


def test_java_home_goes_before_path_and_old_or_broken_ones_are_passed_over(tmp_path: Path) -> None:
    new = fake_java(tmp_path / "new", "21.0.1")
    old = fake_java(tmp_path / "old", "11.0.2")
    broken = fake_java(tmp_path / "broken", "21", code=1)
    nothing = str(tmp_path)
    assert (java_version(new), java_version(old), java_version(broken)) == (21, 11, None)
    assert java_version(tmp_path / "none") is None
    assert find_java({"JAVA_HOME": str(tmp_path / "new"), "PATH": str(old.parent)}) == new
    assert find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(new.parent)}) == new
    assert find_java({"JAVA_HOME": str(tmp_path / "broken"), "PATH": nothing}) is None
    assert find_java({"PATH": str(old.parent)}) is None


def test_the_shim_drops_the_module_that_the_packaged_java_lacks(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text('#!/bin/sh\nfor a do echo "<$a>"; done\n')
    java.chmod(0o755)
    shim = make_shim(java, tmp_path / "home") / "bin" / "java"
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "-version"]
    with os.popen(" ".join([str(shim), *(f"'{argument}'" for argument in arguments)])) as output:
        assert output.read().splitlines() == ["<-Xmx1g>", "<a b>", "<>", "<-version>"]


def test_the_packaged_java_runs_behind_the_shim(tmp_path: Path) -> None:
    java = packaged_java()
    if java is None:  # the system's Java is used then, and is tested by every test with a session
        return
    shim = make_shim(java, tmp_path) / "bin" / "java"
    version = java_version(shim)
    assert version is not None
    assert version >= 17


@pytest.mark.parametrize(("version", "is_fit"), [("4.1.9", False), ("3.5", False), ("4.2.0", True), ("5.0.1", True)])
def test_a_spark_without_limits_for_sources_is_refused(version: str, is_fit: bool) -> None:
    if is_fit:
        check_spark(version)
    else:
        with pytest.raises(BadRequest, match=r"use pyspark 4\.2 or newer"):
            check_spark(version)


def test_workers_get_their_path_without_the_zip_files_in_front(tmp_path: Path) -> None:
    zips = [tmp_path / "a b" / "pyspark.zip", tmp_path / "a b" / "py4j-1-src.zip"]
    python = tmp_path / "python's"
    python.write_text('#!/bin/sh\necho "<$PYTHONPATH>" "$@"\n')
    python.chmod(0o755)
    wrapper = make_wrapper(str(python), zips, tmp_path)

    def path_in(given: str) -> str:
        done = subprocess.run(
            [wrapper, "-m", "pyspark.daemon"], env={"PYTHONPATH": given}, capture_output=True, text=True, check=True
        )
        return done.stdout

    assert path_in(f"{zips[0]}:{zips[1]}:/x.jar:mine") == "</x.jar:mine> -m pyspark.daemon\n"
    assert path_in(f"mine:{zips[0]}:{zips[1]}") == f"<mine:{zips[0]}:{zips[1]}> -m pyspark.daemon\n"


@pytest.mark.needs("spark")
def test_the_zip_files_of_another_spark_are_left_where_they_are(tmp_path: Path) -> None:
    assert [each.name.partition("-")[0] for each in zips_in_front({})] == ["pyspark.zip", "py4j"]
    assert zips_in_front({"SPARK_HOME": str(tmp_path)}) == []
