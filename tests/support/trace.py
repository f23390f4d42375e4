"""Looking at, and breaking, the system calls of a small program, by strace.

The program runs in a child of its own. strace is attached when everything is imported and the
program waits to begin, so what is seen and counted are the calls of the program's own work. It
tells what it has done through a socket (`say`), whose calls are neither traced nor broken.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.support.architecture import ROOT

CALLS = (
    "openat", "openat2", "write", "pwrite64", "writev", "pwritev", "fsync", "fdatasync",
    "sync_file_range", "ftruncate", "rename", "renameat", "renameat2", "link", "linkat", "unlink",
    "unlinkat", "mkdir", "mkdirat", "rmdir",
)  # fmt: skip
_LINE = re.compile(
    r"^(?:\[pid +\d+\] +|\d+ +)?(?P<name>\w+)\((?P<arguments>.*)\) += (?P<result>.+)$"
)
_IMPORTS = """
import json, pathlib, socket, sys
from common import errors
from common.durable import Tree
from common.beneath import have_openat2
have_openat2()
"""
_PROLOGUE = """
_there = socket.socket(fileno=int(sys.argv[1]))
root = pathlib.Path(sys.argv[2])
def say(word): _there.sendall(json.dumps(word).encode() + b"\\n")
def attempt(name, call):
    try:
        call()
    except Exception as error:
        say([name, type(error).__name__, str(error)])
    else:
        say([name, "done", ""])
tree = Tree(root)
say("ready")
_there.recv(1)
"""


@dataclass(frozen=True)
class Call:
    """One system call, with descriptors followed by their paths in angle brackets."""

    name: str
    arguments: str
    result: str


@dataclass(frozen=True)
class Run:
    """What the program said (`attempt` and `say`), what it called, how it ended."""

    said: list[list[str]]
    calls: list[Call]
    returncode: int
    stderr: str

    def outcome(self, name: str) -> str | None:
        """`done`, or the class of the error; None if it never came that far."""
        return next((kind for said, kind, _ in self.said if said == name), None)


@cache
def impossible() -> str | None:
    if shutil.which("strace") is None:
        return "looking at system calls needs strace"
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    if os.geteuid() != 0 and scope.exists() and scope.read_text().strip() != "0":
        return "attaching strace needs root or ptrace_scope 0"
    return None


def run(program: str, root: Path, *, imports: str = "", inject: str | None = None) -> Run:
    """Run a program that has `tree` (a `Tree` over `root`), `attempt(name, call)` and `say`.

    Args:
        program: Python source.
        root: what the tree is over.
        imports: what the program needs; not seen.
        inject: as strace's `-e inject=` has it, such as `fsync:error=EIO:when=2+`.
    """
    if reason := impossible():
        pytest.skip(reason)
    here, there = socket.socketpair()
    with here, there:
        source = _IMPORTS + imports + _PROLOGUE + program
        child = subprocess.Popen(
            [sys.executable, "-c", source, str(there.fileno()), str(root)],
            cwd=ROOT,
            pass_fds=[there.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        there.close()
        here.settimeout(60)
        try:
            lines = here.makefile("r")
            if lines.readline() != '"ready"\n':
                raise AssertionError(child.communicate()[1])
            traced = _traced(child, here, inject)
            said = [json.loads(line) for line in lines]
            _, stderr = child.communicate(timeout=60)
        finally:
            if child.poll() is None:
                child.kill()
                child.communicate()
    return Run(said, traced(), child.returncode, stderr)


def _traced(child: subprocess.Popen[str], here: socket.socket, inject: str | None):
    """Attach strace, let the program go; returns what gives the calls once it has ended."""
    options = ["-e", f"inject={inject}"] if inject else []
    strace = subprocess.Popen(
        ["strace", "-f", "-y", "-s", "64", "-e", f"trace={','.join(CALLS)}", *options,
         "-p", str(child.pid)],
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    first = strace.stderr.readline()
    if "attached" not in first:
        strace.kill()
        strace.communicate()
        pytest.skip(f"strace cannot attach here: {first.strip()}")
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(strace.stderr))
    reader.start()
    here.sendall(b"g")

    def calls() -> list[Call]:
        try:
            strace.wait(timeout=60)
        except subprocess.TimeoutExpired:
            strace.kill()
            strace.wait()
            raise
        finally:
            reader.join()
            strace.stderr.close()
        return [Call(**found.groupdict()) for line in lines if (found := _LINE.match(line))]

    return calls
