"""`scripts/release`: makes everything that is installed."""

from __future__ import annotations

import argparse
import hashlib
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scripts.releasing.bill_of_materials import bill_of_materials
from scripts.releasing.debian_package import DebianPackage
from scripts.releasing.environment_tree import lay_environment
from scripts.releasing.manual_pages import SHELLS, completion, manual_pages
from scripts.releasing.offline_bundle import PYTHONS, lay_bundle, tarred
from scripts.releasing.programs import (
    MACHINES,
    PROGRAMS,
    RELEASING,
    ROOT,
    SENDER,
    SUITES,
    Machine,
    Program,
    Suite,
    Target,
)
from scripts.releasing.wheels import Wheel, build_wheel, fetch, wheels_in

KINDS = ("debs", "bundle", "image")
RELEASE_LOCK = RELEASING / "locks" / "release.txt"


@dataclass
class Release:
    """One run: where it puts things, and the time in all of them."""

    into: Path
    work: Path
    epoch: int
    ours: Wheel = field(init=False)

    def wheel(self) -> None:
        """The wheel of tsferry, and the locks, for who installs with pip."""
        self.ours = build_wheel(self.into)
        for each in PROGRAMS:
            name = f"{each.name}-{self.ours.version}-requirements.txt"
            shutil.copyfile(each.lock, self.into / name)

    def deb(self, program: Program, suite: Suite, machine: Machine) -> None:
        """A package, and its bill of materials."""
        package = DebianPackage(program, suite, machine, self.ours.version)
        wheels = self._fetched(program, Target(machine, suite.python))
        with tempfile.TemporaryDirectory(dir=self.work) as folder:
            root = Path(folder) / "root"
            root.mkdir()
            lay_environment(root, program, suite.python, self.ours, wheels)
            bill = self._bill(package.file_name, [self.ours, *wheels])
            documents = f"usr/share/doc/{program.name}"
            man = self._man(program, f"/{documents}")
            pages = {f"usr/share/man/man1/{name}": page for name, page in man}
            pages |= {f"{documents}/docs/{name}": page for name, page in manual()}
            pages |= {
                place.format(name=program.name): text.encode()
                for place, text in self._completion(program)
            }
            pages[f"{documents}/bill-of-materials.cdx.json"] = bill
            package.add_files(root, pages, self.epoch)
            self._made(package.build(root, self.into, self.epoch))

    def bundle(self, program: Program) -> None:
        """The bundle for machines without a network."""
        name = f"{program.name}-{self.ours.version}-offline"
        root = self.work / name
        wheels = root / "wheels"
        for machine in MACHINES:
            for python in PYTHONS:
                fetch(program.lock, Target(machine, python), wheels)
        for each in self._fetched_tools("pip"):
            shutil.copy(each.path, wheels)
        man = self._man(program, "/opt/tsferry/share/doc")
        more = {f"share/man/man1/{page}": content for page, content in man}
        more |= {f"share/doc/docs/{name}": page for name, page in manual()}
        more |= {
            f"share/completion/{program.name}.{shell}": text.encode()
            for shell, (_, text) in zip(SHELLS, self._completion(program), strict=True)
        }
        contained = [*wheels_in(wheels), self.ours]
        more["bill-of-materials.cdx.json"] = self._bill(f"{name}.tar", contained)
        lay_bundle(root, program, self.ours, program.lock.read_text(), more)
        made = self.into / f"{name}.tar"
        tarred(root, made, self.epoch)
        self._made(made)

    def image(self) -> None:
        """The recipe of the image, and the example for Kubernetes."""
        shutil.copyfile(RELEASING / "Containerfile", self.into / "Containerfile")
        shutil.copyfile(ROOT / "conf" / "kubernetes.yaml", self.into / "kubernetes.yaml")

    def close(self) -> None:
        """The checksums of all that was made."""
        lines = [
            f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n"
            for each in sorted(self.into.iterdir())
            if each.name != "SHA256SUMS"
        ]
        (self.into / "SHA256SUMS").write_text("".join(lines))

    def _fetched(self, program: Program, target: Target) -> list[Wheel]:
        folder = self.work / f"{program.name}-{target.machine.debian}-{target.python}"
        fetch(program.lock, target, folder)
        return wheels_in(folder)

    def _fetched_tools(self, *names: str) -> list[Wheel]:
        folder = self.work / "tools"
        lock = self.work / "tools.txt"
        entries = RELEASE_LOCK.read_text().replace("\\\n", " ").splitlines()
        lock.write_text(
            "".join(f"{each}\n" for each in entries if each.partition("==")[0] in names)
        )
        fetch(lock, Target(MACHINES[0], PYTHONS[0]), folder)
        return wheels_in(folder)

    def _bill(self, made: str, wheels: Sequence[Wheel]) -> bytes:
        bill = bill_of_materials(made, self.ours.version, wheels, self.epoch)
        (self.into / f"{made}.cdx.json").write_bytes(bill)
        return bill

    def _man(self, program: Program, documents: str) -> list[tuple[str, bytes]]:
        cli, version = _cli(program), self.ours.version
        return sorted(manual_pages(cli, program.name, version, self.epoch, documents).items())

    def _completion(self, program: Program) -> list[tuple[str, str]]:
        return [
            (place, completion(_cli(program), program.name, shell))
            for shell, place in SHELLS.items()
        ]

    def _made(self, file: Path) -> None:
        print(f"{file.stat().st_size:>12,}  {file.name}", flush=True)


def manual() -> list[tuple[str, bytes]]:
    """(path below docs, content) of the pages, which messages, configurations and help name."""
    docs = ROOT / "docs"
    return [(str(each.relative_to(docs)), each.read_bytes()) for each in sorted(docs.rglob("*.md"))]


def _cli(program: Program):
    return importlib.import_module(f"{program.name.removeprefix('tsferry-')}.cli.commands").cli


def _earlier(into: Path) -> list[Path]:
    """What an earlier run made in a folder, which has nothing else, or is not there."""
    listed = into / "SHA256SUMS"
    lines = listed.read_text().splitlines() if listed.is_file() else []
    made = [into / each for each in ("SHA256SUMS", *(line.split("  ", 1)[1] for line in lines))]
    others = sorted({*into.iterdir()} - {*made}) if into.is_dir() else []
    if others:
        names = ", ".join(each.name for each in others[:5])
        raise SystemExit(
            f"{into} has what this did not make ({names}): empty it, or name another with --into"
        )
    return made


def _epoch() -> int:
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is None:
        command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        given = done.stdout.strip() or None
    if given is None:
        raise SystemExit(
            "this is no git checkout: set SOURCE_DATE_EPOCH, the seconds since 1970 that things get"
        )
    return int(given)


def _lock() -> None:
    """Newest versions that pyproject allows, with their hashes, for all Pythons and machines."""
    wanted = {each.lock: each.extras for each in PROGRAMS} | {RELEASE_LOCK: ("release",)}
    for file, extras in wanted.items():
        flags = [f"--extra={each}" for each in extras]
        subprocess.run(
            [
                "uv", "pip", "compile", "--quiet", "--universal", "--generate-hashes", "--upgrade",
                "--python-version=3.11", "--no-header", "--no-annotate", *flags,
                "pyproject.toml", f"--output-file={file}",
            ],
            cwd=ROOT, check=True,
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        )  # fmt: skip


def main() -> None:
    """Make what is asked for."""
    asked = argparse.ArgumentParser(prog="scripts/release", description=__doc__)
    asked.add_argument(
        "--into",
        type=Path,
        default=ROOT / "dist",
        help="a folder; what an earlier run made there goes",
    )
    asked.add_argument("--only", choices=KINDS, action="append", help="a kind; may be repeated")
    asked.add_argument("--program", choices=[each.name for each in PROGRAMS], action="append")
    asked.add_argument("--machine", choices=[each.debian for each in MACHINES], action="append")
    asked.add_argument("--suite", choices=[each.name for each in SUITES], action="append")
    asked.add_argument(
        "--lock", action="store_true", help="renew scripts/releasing/locks, and make nothing"
    )
    args = asked.parse_args()
    if args.lock:
        _lock()
        return
    os.environ["SOURCE_DATE_EPOCH"] = str(epoch := _epoch())
    into = args.into.absolute()
    _earlier(into)
    kinds = args.only or KINDS
    programs = [each for each in PROGRAMS if not args.program or each.name in args.program]
    (ROOT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as work:
        release = Release(Path(work) / "dist", Path(work), epoch)
        release.wheel()
        if "debs" in kinds:
            for suite in SUITES:
                for machine in MACHINES:
                    if suite.name in (args.suite or [SUITES[0].name]) and machine.debian in (
                        args.machine or [each.debian for each in MACHINES]
                    ):
                        for program in programs:
                            release.deb(program, suite, machine)
        if "bundle" in kinds and SENDER in programs:
            release.bundle(SENDER)
        if "image" in kinds:
            release.image()
        release.close()
        for each in _earlier(into):
            each.unlink(missing_ok=True)
        into.mkdir(parents=True, exist_ok=True)
        for each in sorted(release.into.iterdir()):
            shutil.move(each, into / each.name)
    print(f"{into}: {len(list(into.iterdir()))} files, with SHA256SUMS")


if __name__ == "__main__":
    main()
