"""Breaks the programs on purpose, in one place at a time, and demands that a test sees it.

The list is scripts/mutations.toml: which text of which file becomes what, and the tests that must
then fail. Each mutation is made in a copy of the sources, where nothing else is changed; the
catchers are run once without any, to see that they pass. A text that is not found exactly once, or
a catcher that does not exist, is an error: the list cannot rot.

Exit code 0 if every mutation was seen, 1 if one was not, 2 if the list is wrong.
"""

from __future__ import annotations

import argparse
import ast
import fnmatch
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.ended_by_signals import end_on_signals

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "scripts" / "mutations.toml"
_LONGEST = 600.0


@dataclass(frozen=True)
class Mutation:
    """One piece that is taken out.

    Attributes:
        name: unique; `--only` takes it, or a pattern of names.
        file: relative to the root of the repository.
        old: text of it, found there exactly once.
        new: what takes its place.
        tests: as pytest is told them; each of them alone must fail.
        why: what a reader may ask, where it does not show.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    why: str = ""

    def source(self, root: Path = ROOT) -> str:
        """The file with the mutation.

        Raises:
            ValueError: it cannot be made, or gives no Python.
        """
        content = (root / self.file).read_text()
        found = content.count(self.old)
        if found != 1:
            raise ValueError(f"{self.name}: its text is {found} times in {self.file}, not once")
        changed = content.replace(self.old, self.new)
        if changed == content:
            raise ValueError(f"{self.name}: changes nothing")
        if self.file.endswith(".py"):
            try:
                ast.parse(changed)
            except SyntaxError as error:
                raise ValueError(f"{self.name}: {self.file} is no Python then: {error}") from error
        return changed

    def lines(self, root: Path = ROOT) -> range:
        """The lines of the file that it touches, from 1."""
        before = (root / self.file).read_text().partition(self.old)[0]
        first = before.count("\n") + 1
        return range(first, first + self.old.rstrip("\n").count("\n") + 1)


def read() -> list[Mutation]:
    """The list.

    Raises:
        ValueError: an entry lacks something, or has a name that another has.
    """
    found: list[Mutation] = []
    for entry in tomllib.loads(LIST.read_text())["mutation"]:
        try:
            mutation = Mutation(**{**entry, "tests": tuple(entry["tests"])})
        except (KeyError, TypeError) as error:
            raise ValueError(f"{LIST.name}: {entry.get('name', entry)}: {error}") from error
        if any(each.name == mutation.name for each in found):
            raise ValueError(f"{LIST.name}: two are called {mutation.name}")
        found.append(mutation)
    return found


class Scratch:
    """A copy of the sources in which one file at a time is another."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._time = time.time()
        tracked = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
            cwd=ROOT, check=True, capture_output=True, text=True,
        ).stdout.split("\0")  # fmt: skip
        for name in filter(None, tracked):
            if (ROOT / name).is_file():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, root / name)

    def fails(self, tests: Sequence[str]) -> tuple[bool, str]:
        """Whether the tests fail, and the end of what they print.

        Raises:
            ValueError: there is no such test, it was skipped, or comes to no end.
        """
        env = {**os.environ, "PYTHONPATH": str(self._root)}  # for the programs that they start
        try:
            done = subprocess.run(
                [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests],
                cwd=self._root, env=env, capture_output=True, text=True, timeout=_LONGEST,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise ValueError(f"{' '.join(tests)}: not done in {_LONGEST:g} s") from error
        said = (done.stdout + done.stderr).strip()
        last = said.splitlines()[-1] if said else ""
        if done.returncode not in (0, 1) or (done.returncode == 0 and "skipped" in last):
            raise ValueError(f"{' '.join(tests)}: {last}\n{said[-2000:]}")
        return done.returncode == 1, said

    def missed_by(self, mutation: Mutation) -> list[str]:
        """The catchers that pass all the same."""
        self._put(mutation.file, mutation.source())
        try:
            return [test for test in mutation.tests if not self.fails([test])[0]]
        finally:
            self._put(mutation.file, (ROOT / mutation.file).read_text())

    def _put(self, file: str, content: str) -> None:
        """Replace a file; its time is another each time, or Python would keep what it compiled."""
        self._time += 2
        (self._root / file).write_text(content)
        os.utime(self._root / file, (self._time, self._time))


def survivors(mutations: Sequence[Mutation], *, check: bool = True) -> Iterator[str]:
    """Make each mutation and run its catchers; says of each catcher that saw nothing."""
    with tempfile.TemporaryDirectory(prefix="tsferry-mutations-") as directory:
        scratch = Scratch(Path(directory))
        catchers = sorted({test for each in mutations for test in each.tests})
        if check:
            failed, said = scratch.fails(catchers)
            if failed:
                raise ValueError(f"the catchers fail without a mutation:\n{said[-4000:]}")
            print(f"{len(catchers)} catchers pass without a mutation", flush=True)
        for mutation in mutations:
            begin = time.monotonic()
            missed = scratch.missed_by(mutation)
            word = "NOT SEEN" if missed else "seen"
            print(f"{word:8s} {time.monotonic() - begin:5.1f} s  {mutation.name}", flush=True)
            for test in missed:
                yield f"{mutation.name}: {test} passes all the same"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="show the mutations and their catchers")
    parser.add_argument("--only", action="append", metavar="NAME", help="a name, or a pattern")
    parser.add_argument("--no-check", action="store_true", help="do not run the catchers before")
    arguments = parser.parse_args()
    end_on_signals()  # the copy of the sources goes
    try:
        chosen = read()
        if arguments.only:
            patterns = arguments.only
            chosen = [m for m in chosen if any(fnmatch.fnmatch(m.name, p) for p in patterns)]
        if not chosen:
            raise ValueError("there is no mutation of that name")
        for each in chosen:
            each.source()
        if arguments.list:
            for each in chosen:
                print(
                    f"{each.name}\n    {each.file}:{each.lines().start}", *each.tests, sep="\n    "
                )
            return 0
        missed = list(survivors(chosen, check=not arguments.no_check))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    for each in missed:
        print(f"SURVIVED: {each}")
    print(f"{len(chosen)} mutations, {len(missed)} not seen")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
