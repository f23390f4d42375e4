"""What failed beside others is decided by how it does alone, and is named either way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

TESTS = """
from pathlib import Path

import pytest


def test_a_fault():
    assert False


@pytest.mark.parametrize("words", ["a b[c]", "d::e"])
def test_beside_others(words):
    assert Path("alone").exists()


def test_holds():
    Path("ran").write_text("")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_them.py").write_text(TESTS)
    return tmp_path


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.slow
def test_what_passes_alone_is_named_and_a_fault_fails_again(project: Path) -> None:
    assert run(project, "pytest", "-q", "-k", "beside").returncode == 1
    (project / "alone").write_text("")
    again = run(project, "tests.support.again", "-q")
    assert again.returncode == 0, again.stdout
    assert "test_them.py::test_beside_others[a b[c]]" in again.stdout.rpartition("UNSTEADY")[2]
    assert not (project / "ran").exists(), "only what failed is run again"
    assert run(project, "pytest", "-q").returncode == 1
    again = run(project, "tests.support.again", "-q")
    assert (again.returncode, "UNSTEADY" in again.stdout) == (1, False)


@pytest.mark.parametrize("failed", [[], [f"test_them.py::test_{each}" for each in range(7)]])
def test_too_many_and_none_are_not_run_again(project: Path, failed: list[str]) -> None:
    noted = project / ".pytest_cache/v/cache/lastfailed"
    noted.parent.mkdir(parents=True)
    noted.write_text(json.dumps(dict.fromkeys(failed, True)))
    assert run(project, "tests.support.again").returncode == 1
    assert not (project / "ran").exists()
