"""Directories for what nobody needs after a process: they go with it, however it ends."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.durable import ScratchDirectory

_HOLDS = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from common.durable import ScratchDirectory
scratch = ScratchDirectory("test")
open(scratch.name + "/file", "w").close()
print(scratch.name, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def other(root: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDS, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        yield child, Path(child.stdout.readline().strip())
        child.kill()


def test_it_goes_with_its_end(root: Path) -> None:
    with ScratchDirectory("test") as scratch:
        (Path(scratch.name) / "deep").mkdir()
        (Path(scratch.name) / "deep/file").touch()
        assert Path(scratch.name).stat().st_mode & 0o777 == 0o700
    assert list(root.iterdir()) == []
    scratch.close()


def test_what_a_killed_process_left_goes_with_the_next(
    root: Path, other: tuple[subprocess.Popen[str], Path]
) -> None:
    child, left = other
    with ScratchDirectory("test"):
        assert (left / "file").exists(), "it lives"
    child.kill()
    child.wait()
    assert (left / "file").exists()
    ScratchDirectory("other").close()
    assert left.exists(), "it is of another kind"
    ScratchDirectory("test").close()
    assert list(root.iterdir()) == []


def test_what_is_not_ours_stays(root: Path) -> None:
    for name in ("test-abcdefg", "test-abcdefghi", "test-ABCDEFGH", "other-abcdefgh"):
        (root / name).mkdir()
        (root / name / ".held").touch()
    (root / "test-abcdefgh").touch()
    elsewhere = root / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".held").touch()
    (root / "test-00000000").symlink_to(elsewhere)
    before = sorted(root.rglob("*"))
    ScratchDirectory("test").close()
    assert sorted(root.rglob("*")) == before


def test_one_that_is_just_being_made_stays_for_a_while(root: Path) -> None:
    made = root / "test-abcdefgh"
    made.mkdir()
    ScratchDirectory("test").close()
    assert made.exists()
    os.utime(made, (1, 1))
    ScratchDirectory("test").close()
    assert not made.exists()
