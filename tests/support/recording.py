"""What programs of ours ask of the kernel while they do their work, recorded by strace.

`tests.support.trace` looks at a few lines of Python. Here whole programs run, with all their
threads, as a user starts them; strace is their grandchild, so signals and exit codes are their own.
Each thread has a file, so that no call of one is printed in two halves around those of another.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.support.procs import Child, Children, wait_until
from tests.support.trace import CALLS

_ALSO = (
    "copy_file_range", "fallocate", "mkdir", "pwritev2", "recvfrom", "sendfile", "sendmsg",
    "sendto", "symlink", "symlinkat", "syncfs", "truncate",
)  # fmt: skip
_SHOWN = 1 << 15
"""Bytes of a write that are shown: a frame of the engine's log names each file of a task."""
_LINE = re.compile(
    r"(?P<begin>\d+\.\d+) (?P<name>\w+)\((?P<arguments>.*)\) += (?P<result>-?\d+)"
    r"(?:<(?P<opened>[^>]*)>)?.* <(?P<seconds>\d+\.\d+)>"
)
_TOKEN = re.compile(
    r"(?:AT_FDCWD|\d+)<(?P<fd>[A-Z][\w-]*:\[[^\]]*\]|[^>]*)>|\"(?P<text>(?:[^\"\\]|\\.)*)\""
)


@dataclass(frozen=True)
class Step:
    """One system call that came to its end.

    Attributes:
        process, thread: whose; processes are numbered in the order of their starts.
        begin, end: seconds.
        name: of the call.
        arguments: as strace shows them.
        result: what it gave; -1 is a failure.
        opened: the path behind a descriptor that it gave.
    """

    process: int
    thread: int
    begin: float
    end: float
    name: str
    arguments: str
    result: int
    opened: str | None

    @cached_property
    def _tokens(self) -> list[tuple[str, str]]:
        found = _TOKEN.finditer(self.arguments)
        return [(each.lastgroup or "", each[each.lastgroup or 0]) for each in found]

    @cached_property
    def descriptors(self) -> list[str]:
        """What is behind its descriptors: paths, or `TCP:[...]`."""
        return [_path(text) for kind, text in self._tokens if kind == "fd"]

    @cached_property
    def texts(self) -> list[bytes]:
        """Its strings: names, or what is written."""
        return [_bytes(text) for kind, text in self._tokens if kind == "text"]

    @cached_property
    def paths(self) -> list[str]:
        """Its names, each beneath the directory that it is looked up in."""
        found, directory = [], ""
        for kind, text in self._tokens:
            if kind == "fd":
                directory = _path(text)
            else:
                found.append(str(Path(directory, _bytes(text).decode(errors="surrogateescape"))))
        return found


def _bytes(text: str) -> bytes:
    return codecs.escape_decode(text.encode("latin-1"))[0]  # type: ignore[attr-defined,no-any-return]


def _path(text: str) -> str:
    return _bytes(text).decode(errors="surrogateescape")


class Recorded:
    """Programs under strace, and what they called."""

    def __init__(self, children: Children, directory: Path) -> None:
        self._children = children
        self._directory = directory
        self._number = 0

    def start(
        self,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        forked: bool = False,
    ) -> Child:
        """Start a program; recorded from its first call, so never a fork (`forked`) of another."""
        self._number += 1
        output = self._directory / f"calls-{self._number}"
        output.mkdir(parents=True)
        strace = [
            "strace", "-DD", "--seccomp-bpf", "-ff", "-yy", "-s", str(_SHOWN),
            "-e", "signal=SIGKILL", "-e", f"trace={','.join((*CALLS, *_ALSO))}",
            "--absolute-timestamps=format:unix,precision:ns", "--syscall-times=ns",
            "-o", str(output / "thread"), "--",
        ]  # fmt: skip
        return self._children.start([*strace, *arguments], env=env)

    @property
    def processes(self) -> int:
        """How many were started."""
        return self._number

    def steps(self, process: int) -> list[Step]:
        """What one of them, which has ended, has called."""
        files = sorted((self._directory / f"calls-{process}").iterdir())
        assert files, "strace has recorded nothing"
        wait_until(lambda: all(map(_is_whole, files)), "strace has written all that it saw")
        return [step for file in files for step in _read(process, file)]


def _is_whole(file: Path) -> bool:
    return file.read_text(errors="replace").rstrip().endswith("+++")


def _read(process: int, file: Path) -> Iterator[Step]:
    thread = int(file.suffix[1:])
    for line in file.read_text(encoding="latin-1").splitlines():
        if (found := _LINE.fullmatch(line)) is None:
            continue  # its end, or a call that it died in
        begin = float(found["begin"])
        opened = None if found["opened"] is None else _path(found["opened"])
        yield Step(
            process, thread, begin, begin + float(found["seconds"]), found["name"],
            found["arguments"], int(found["result"]), opened,
        )  # fmt: skip
