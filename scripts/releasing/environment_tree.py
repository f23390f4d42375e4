"""A virtual environment made of wheels, for another machine: nothing of it is run."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from installer import install
from installer.destinations import SchemeDictionaryDestination
from installer.sources import WheelFile

from scripts.releasing.programs import Program
from scripts.releasing.wheels import Wheel

__all__ = ["lay_environment", "only_modules"]


def lay_environment(
    root: Path, program: Program, python: str, ours: Wheel, others: Sequence[Wheel]
) -> None:
    """Lay an environment below a root, as `python -m venv` and pip would at its place.

    Args:
        root: of the package's files.
        program: whose environment it is, at `program.home`.
        python: version as in "3.11"; /usr/bin/python3.11 runs it.
        ours: the wheel of tsferry.
        others: what it needs.
    """
    home = root / program.home.lstrip("/")
    (home / "bin").mkdir(parents=True)
    (home / "pyvenv.cfg").write_text(
        f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {python}\n"
    )
    # Within /usr links are relative, as policy has it.
    (home / "bin" / "python").symlink_to(f"../../../bin/python{python}")
    places = dict.fromkeys(
        ("purelib", "platlib"), f"{program.home}/lib/python{python}/site-packages"
    )
    places |= {"scripts": f"{program.home}/bin", "data": program.home}
    places |= {"headers": f"{program.home}/include"}
    destination = SchemeDictionaryDestination(
        places, f"{program.home}/bin/python", "posix", destdir=str(root)
    )
    for each in others:
        with WheelFile.open(each.path) as source:
            install(source, destination, additional_metadata={"INSTALLER": b"tsferry\n"})
    with zipfile.ZipFile(only_modules(ours, program)) as opened:
        opened.filename = ours.path.name  # what installer knows name and version by
        source = WheelFile(opened)
        install(source, destination, additional_metadata={"INSTALLER": b"tsferry\n"})


def only_modules(wheel: Wheel, program: Program) -> io.BytesIO:
    """The wheel of tsferry with what one program needs, and its command alone.

    The names on its RECORD go with the files, or the rest would count as damaged.
    """
    kept = io.BytesIO()
    tops = {*program.modules, f"tsferry-{wheel.version}.dist-info"}
    with zipfile.ZipFile(wheel.path) as opened, zipfile.ZipFile(kept, "w") as made:
        for entry in opened.infolist():
            if entry.filename.partition("/")[0] not in tops:
                continue
            content = opened.read(entry)
            if entry.filename.endswith(".dist-info/RECORD"):
                content = _lines(content, lambda line: line.partition("/")[0] in tops)
            elif entry.filename.endswith(".dist-info/entry_points.txt"):
                content = _lines(content, lambda line: line.startswith(("[", f"{program.name} ")))
            made.writestr(entry, content)
    kept.seek(0)
    return kept


def _lines(content: bytes, kept: Callable[[str], bool]) -> bytes:
    return "".join(line for line in content.decode().splitlines(True) if kept(line)).encode()
