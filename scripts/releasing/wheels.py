"""Wheels: that of tsferry, and the locked ones of what it needs, for a target."""

from __future__ import annotations

import email
import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from packaging.requirements import Requirement

from scripts.releasing.programs import ROOT, Target

__all__ = ["Wheel", "build_wheel", "fetch", "locked", "wheels_in"]


@dataclass(frozen=True)
class Wheel:
    """A wheel as a file."""

    path: Path

    @cached_property
    def sha256(self) -> str:
        """Of its bytes, in hex digits."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest()

    @cached_property
    def metadata(self) -> email.message.Message:
        """What stands in its METADATA."""
        with zipfile.ZipFile(self.path) as opened:
            name = next(each for each in opened.namelist() if each.endswith(".dist-info/METADATA"))
            return email.message_from_bytes(opened.read(name))

    @property
    def name(self) -> str:
        """Of its distribution."""
        return str(self.metadata["Name"])

    @property
    def version(self) -> str:
        """Of its distribution."""
        return str(self.metadata["Version"])


def wheels_in(folder: Path) -> list[Wheel]:
    """By file name."""
    return [Wheel(each) for each in sorted(folder.glob("*.whl"))]


def locked(text: str, target: Target) -> str:
    """The requirements of a lock that a target has, without markers.

    pip judges markers by the Python that runs it, whatever Python it downloads for.

    Args:
        text: of a lock, a requirement with its hashes on continued lines.
        target: that decides.
    """
    environment = {
        "implementation_name": "cpython",
        "platform_machine": target.machine.python,
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": f"{target.python}.2",
        "python_version": target.python,
        "sys_platform": "linux",
    }
    kept: list[str] = []
    for words in _entries(text):
        requirement = Requirement(" ".join(each for each in words if not each.startswith("--")))
        if requirement.marker is None or requirement.marker.evaluate(environment):
            hashes = [each for each in words if each.startswith("--hash=")]
            kept.append(" ".join([f"{requirement.name}{requirement.specifier}", *hashes]))
    return "".join(f"{each}\n" for each in kept)


def _entries(text: str) -> Iterator[list[str]]:
    for line in text.replace("\\\n", " ").splitlines():
        words = line.partition(" #")[0].split()
        if words and not words[0].startswith("#"):
            yield words


def fetch(lock: Path, target: Target, into: Path) -> None:
    """Download the wheels of a lock for a target; hashes are checked, nothing is built or run.

    Raises:
        CalledProcessError: there is no such wheel, or its hash is another one; pip has said so.
    """
    into.mkdir(parents=True, exist_ok=True)
    wanted = into / f".{target.machine.python}-{target.python}.txt"
    wanted.write_text(locked(lock.read_text(), target))
    short = target.python.replace(".", "")
    flags = [f"--platform={each}" for each in target.platforms]
    flags += [f"--abi={each}" for each in (f"cp{short}", "abi3", "none")]
    _pip(
        "download", "--quiet", "--no-deps", "--require-hashes", "--only-binary=:all:",
        f"--python-version={target.python}", "--implementation=cp", *flags,
        f"--dest={into}", f"--requirement={wanted}",
    )  # fmt: skip
    wanted.unlink()


def build_wheel(into: Path) -> Wheel:
    """The wheel of these sources, into a folder; SOURCE_DATE_EPOCH is the time in it."""
    into.mkdir(parents=True, exist_ok=True)
    program = "import sys, hatchling.build; print(hatchling.build.build_wheel(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", program, str(into)],
        cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True, env=dict(os.environ),
    )  # fmt: skip
    return Wheel(into / done.stdout.split()[-1])


def _pip(*arguments: str | Sequence[str]) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments], check=True
    )
