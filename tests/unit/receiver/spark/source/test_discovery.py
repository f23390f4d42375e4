"""Spark finds the source in an installed wheel, and looking for it costs nobody a compiler."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

ROOT = Path(__file__).resolve().parents[5]
SOURCE = "receiver/spark/source/pyspark_tsfile.py"


def test_the_wheel_has_the_module_that_spark_looks_for():
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert build["targets"]["wheel"]["force-include"][SOURCE] == "pyspark_tsfile.py"
    assert (ROOT / SOURCE).is_file()


def test_it_names_the_source_and_brings_nothing_heavy():
    script = (
        "import sys, runpy\n"
        f"found = runpy.run_path({str(ROOT / SOURCE)!r})['DefaultSource']\n"
        "assert found.name() == 'tsfile', found\n"
        "print([each for each in ('numba', 'flask', 'requests') if each in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
