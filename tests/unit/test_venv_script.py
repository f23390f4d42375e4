"""`scripts/venv.sh`: an environment that was copied with its sources runs no others."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.support.architecture import ROOT

OTHER_PLACE = "was made for sources at another place"


@pytest.fixture(params=["short", "long" * 40])
def checkout(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Sources with an environment, as `pip install --editable` leaves it."""
    made = tmp_path / request.param / "checkout"
    (made / "common").mkdir(parents=True)
    (made / "common" / "__init__.py").touch()
    (made / "pyproject.toml").touch()
    environment = made / ".venv"
    venv.create(environment, symlinks=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "tsferry.pth").write_text(f"{made}\n")
    begin = f"#!{environment}/bin/python"
    if len(begin) > 127:  # which the kernel does not read to its end
        begin = f"#!/bin/sh\n'''exec' {environment}/bin/python \"$0\" \"$@\""
    for name in ("tsferry-sender", "pip"):
        (environment / "bin" / name).write_text(f"{begin}\n")
        (environment / "bin" / name).chmod(0o755)
    stamp = subprocess.check_output(["cksum"], input=b"", text=False)
    (environment / ".installed-quickstart").write_bytes(stamp)
    return made


def said(checkout: Path, tmp_path: Path) -> str:
    """What it says; Python here makes no environments, so that nothing is fetched."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\n[ "$1" = -m ] && exit 1\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", f". {ROOT}/scripts/venv.sh && venv quickstart"],
        cwd=checkout,
        env=os.environ | {"PYTHON": str(python)},
        capture_output=True,
        text=True,
    )
    return done.stdout + done.stderr


def test_an_environment_at_its_place_is_taken_as_it_is(checkout: Path, tmp_path: Path) -> None:
    assert said(checkout, tmp_path) == ""
    assert (checkout / ".venv" / "bin" / "tsferry-sender").is_file()


def test_one_that_was_copied_or_moved_with_the_sources_is_made_anew(
    checkout: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(checkout, tmp_path / "copy", symlinks=True)
    assert OTHER_PLACE in said(copy, tmp_path)
    assert not (copy / ".venv").exists()
    moved = checkout.rename(tmp_path / "moved")
    assert OTHER_PLACE in said(moved, tmp_path)
