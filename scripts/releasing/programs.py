"""What is packaged: the two programs, and the machines that they are packaged for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "AMD64",
    "ARM64",
    "BOOKWORM",
    "MACHINES",
    "PROGRAMS",
    "RECEIVER",
    "RELEASING",
    "ROOT",
    "SENDER",
    "SUITES",
    "Machine",
    "Program",
    "Suite",
    "Target",
]

RELEASING = Path(__file__).resolve().parent
ROOT = RELEASING.parent.parent


@dataclass(frozen=True)
class Machine:
    """A kind of processor, as Debian and as Python call it."""

    debian: str
    python: str


@dataclass(frozen=True)
class Suite:
    """A release of Debian: its number, and the only version of Python that it has."""

    name: str
    number: int
    python: str
    oldest: str
    """The patch level of Python that the suite began with."""


@dataclass(frozen=True)
class Target:
    """What wheels are chosen for. Not musl: watchdog has no wheel for it."""

    machine: Machine
    python: str

    @property
    def platforms(self) -> tuple[str, ...]:
        """Platform tags, the best first: glibc from 2.28 (Debian 10, RHEL 8) down."""
        ends = (*(f"manylinux_2_{minor}" for minor in range(28, 16, -1)), "manylinux2014", "linux")
        return tuple(f"{each}_{self.machine.python}" for each in ends)


@dataclass(frozen=True)
class Program:
    """A program, and what its packages have of tsferry."""

    name: str
    extras: tuple[str, ...]
    modules: tuple[str, ...]
    """What stands on the top level of the wheel and comes along."""
    config: str
    unit: str
    depends: tuple[str, ...]
    summary: str
    description: str

    @property
    def lock(self) -> Path:
        """Its locked requirements, for all targets."""
        return RELEASING / "locks" / f"{self.name.removeprefix('tsferry-')}.txt"

    @property
    def home(self) -> str:
        """Where its package puts the environment."""
        return f"/usr/lib/{self.name}"


AMD64 = Machine("amd64", "x86_64")
ARM64 = Machine("arm64", "aarch64")
MACHINES = (AMD64, ARM64)
BOOKWORM = Suite("bookworm", 12, "3.11", "3.11.2")
SUITES = (BOOKWORM, Suite("trixie", 13, "3.13", "3.13.5"))

SENDER = Program(
    name="tsferry-sender",
    extras=("zstd",),
    modules=("common", "sender", "tsferry_conf"),
    config="sender.toml",
    unit="tsferry-sender.service",
    depends=(),
    summary="ships closed TsFiles to the data centre",
    description="""\
A small daemon for the edge: finds closed TsFiles, holds them by hard links,
sends them in checked blocks over HTTP and goes on where a line broke.
Everything that it needs of Python is in the package; Spark, Flask and a
compiler are not needed.""",
)
RECEIVER = Program(
    name="tsferry-receiver",
    extras=("receiver", "s3", "zstd"),
    modules=("common", "receiver", "tsferry_conf"),
    config="receiver.toml",
    unit="tsferry-receiver.service",
    # what the wheels of numba and pyarrow take from the system
    depends=("libstdc++6", "zlib1g"),
    summary="takes TsFiles in and keeps their catalogue",
    description="""\
The server of the data centre: verifies TsFiles that senders ship, loads them
in commits, keeps a catalogue of files, devices and time series, and its
history. Everything that it needs of Python is in the package. The
verification on Spark (tsferry-verify) is not part of it.""",
)
PROGRAMS = (SENDER, RECEIVER)
