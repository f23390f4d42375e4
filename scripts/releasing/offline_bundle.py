"""A bundle for machines without a network: wheels, and a script that installs them."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path

from scripts.releasing.programs import RELEASING, Program
from scripts.releasing.wheels import Wheel

__all__ = ["PYTHONS", "lay_bundle", "sums", "tarred"]

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
_TEMPLATES = RELEASING / "bundle"


def lay_bundle(
    root: Path, program: Program, ours: Wheel, lock: str, more: Mapping[str, bytes]
) -> None:
    """Write what is beside the wheels, which are in `wheels` already.

    Args:
        root: of the bundle.
        program: that it installs.
        ours: the wheel of tsferry; a copy of it goes there too.
        lock: the locked requirements of the program.
        more: path below the root -> content.
    """
    shutil.copy(ours.path, root / "wheels")
    extras = ",".join(program.extras)
    mine = f"tsferry[{extras}]=={ours.version} --hash=sha256:{ours.sha256}\n"
    (root / "requirements.txt").write_text(mine + lock)
    for name in ("install.sh", "README"):
        text = (_TEMPLATES / name).read_text()
        text = text.replace("@NAME@", program.name).replace("@VERSION@", ours.version)
        (root / name).write_text(text)
    (root / "install.sh").chmod(0o755)
    for path, content in more.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    (root / "SHA256SUMS").write_text(sums(root))


def sums(root: Path) -> str:
    """What `sha256sum -c` reads, of all files below a folder but this one."""
    files = (each for each in sorted(root.rglob("*")) if each.is_file())
    return "".join(
        f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.relative_to(root)}\n"
        for each in files
        if each.name != "SHA256SUMS"
    )


def tarred(root: Path, into: Path, epoch: int) -> None:
    """A tar file of a folder, the same for the same content, on any machine.

    Not compressed: wheels are, and another zlib would give other bytes.
    """
    with tarfile.open(into, "w", format=tarfile.PAX_FORMAT) as made:
        for each in [root, *sorted(root.rglob("*"))]:
            entry = made.gettarinfo(each, arcname=os.fspath(each.relative_to(root.parent)))
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = "root"
            entry.mtime = epoch
            entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
            if entry.isfile():
                with each.open("rb") as content:
                    made.addfile(entry, content)
            else:
                made.addfile(entry)
