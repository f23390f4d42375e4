"""A package of Debian: files with their modes, the control files, and `dpkg-deb`."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path

from scripts.releasing.programs import RELEASING, ROOT, Machine, Program, Suite

__all__ = ["SCRIPTS", "DebianPackage", "packaged_unit", "settle"]

SCRIPTS = ("preinst", "postinst", "prerm", "postrm")
_MAINTAINER = "The tsferry developers <tsferry@localhost>"
_COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: tsferry

Files: *
Copyright: 2026 The tsferry developers
License: Apache-2.0
 On Debian systems the text of this license is in /usr/share/common-licenses/Apache-2.0.
Comment:
 Libraries below {program.home} that are not part of tsferry have licenses of their own:
 bill-of-materials.cdx.json beside this file names them, *.dist-info has their texts.
"""
_STATE = {"tsferry-sender": ":", "tsferry-receiver": "make_state"}
"""What postinst does for the state: a sender keeps its own beside the TsFiles of others."""


@dataclass(frozen=True)
class DebianPackage:
    """One package of a program, for a suite and a machine."""

    program: Program
    suite: Suite
    machine: Machine
    upstream: str
    """Version of tsferry."""

    @property
    def version(self) -> str:
        """Sorts after the upstream version, and that for a later suite after this."""
        return f"{self.upstream}+deb{self.suite.number}"

    @property
    def file_name(self) -> str:
        """As dpkg names packages."""
        return f"{self.program.name}_{self.version}_{self.machine.debian}.deb"

    def control(self, size: int) -> str:
        """The control file. size: of all files, in KiB."""
        needs = [
            f"python{self.suite.python} (>= {self.suite.oldest})",
            "adduser",
            "libc6 (>= 2.28)",
            *self.program.depends,
        ]
        described = "".join(f" {line}\n" for line in self.program.description.splitlines())
        return (
            f"Package: {self.program.name}\n"
            f"Version: {self.version}\n"
            f"Architecture: {self.machine.debian}\n"
            f"Maintainer: {_MAINTAINER}\n"
            f"Installed-Size: {size}\n"
            f"Depends: {', '.join(needs)}\n"
            "Recommends: ca-certificates\n"
            "Suggests: bash-completion\n"
            "Section: database\n"
            "Priority: optional\n"
            f"Description: {self.program.summary}\n"
            f"{described}"
            " .\n"
            f" Built for Debian {self.suite.number} ({self.suite.name}), and runs on its Python"
            f" {self.suite.python}.\n"
        )

    def script(self, name: str) -> str:
        """A maintainer script."""
        text = (RELEASING / "debian" / name).read_text()
        values = {
            "NAME": self.program.name,
            "HOME": self.program.home,
            "PYTHON": self.suite.python,
            "UNIT": self.program.unit,
            "LOG": self.program.config.replace(".toml", ".log"),
            "STATE": _STATE[self.program.name],
        }
        for key, value in values.items():
            text = text.replace(f"@{key}@", value)
        assert not (left := re.findall(r"@[A-Z]+@", text)), left
        return text

    def changes(self, epoch: int) -> str:
        """The changelog of the package, which points to that of the program. epoch: its date."""
        return (
            f"{self.program.name} ({self.version}) {self.suite.name}; urgency=medium\n\n"
            f"  * tsferry {self.upstream}; CHANGELOG.md.gz beside this file has what changed.\n\n"
            f" -- {_MAINTAINER}  {formatdate(epoch).replace('-0000', '+0000')}\n"
        )

    def add_files(self, root: Path, pages: Mapping[str, bytes], epoch: int) -> None:
        """What is beside the environment.

        Args:
            root: of the package's files.
            pages: path below the root -> content, of man pages, completion and the like.
            epoch: seconds since 1970, of the changelog.
        """
        name = self.program.name
        command = root / "usr/bin" / name
        command.parent.mkdir(parents=True)
        command.symlink_to(f"../{self.program.home.removeprefix('/usr/')}/bin/{name}")
        documents = f"usr/share/doc/{name}"
        upstream = (ROOT / "CHANGELOG.md").read_bytes()
        files = {
            f"etc/tsferry/{self.program.config}": (
                ROOT / "conf" / self.program.config
            ).read_bytes(),
            f"usr/lib/systemd/system/{self.program.unit}": packaged_unit(self.program).encode(),
            f"{documents}/changelog.gz": gzip.compress(self.changes(epoch).encode(), mtime=0),
            f"{documents}/CHANGELOG.md.gz": gzip.compress(upstream, mtime=0),
            f"{documents}/copyright": _COPYRIGHT.format(program=self.program).encode(),
            **pages,
        }
        for path, content in files.items():
            place = root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)

    def build(self, root: Path, into: Path, epoch: int) -> Path:
        """Write the package; root has its files, and gets its control files.

        Raises:
            CalledProcessError: dpkg-deb refuses it, and has said why.
        """
        control = root / "DEBIAN"
        control.mkdir()
        files = [
            each for each in sorted(root.rglob("*")) if each.is_file() and not each.is_symlink()
        ]
        (control / "md5sums").write_text("".join(_md5(each, root) for each in files))
        (control / "conffiles").write_text(f"/etc/tsferry/{self.program.config}\n")
        size = sum(each.stat().st_size for each in files)
        (control / "control").write_text(self.control(-(-size // 1024)))
        for name in SCRIPTS:
            (control / name).write_text(self.script(name))
            (control / name).chmod(0o755)
        settle(root, epoch)
        into.mkdir(parents=True, exist_ok=True)
        made = into / self.file_name
        # zstd: half a gigabyte of a receiver takes xz minutes here, and tens of seconds wherever it
        # is installed. One thread: with several, the number of them would show in the bytes.
        command = ["dpkg-deb", "--root-owner-group", "-Zzstd", "-z6", "--threads-max=1"]
        subprocess.run(
            [*command, "--build", str(root), str(made)],
            env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)},
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        return made


def _md5(file: Path, root: Path) -> str:
    """A line as dpkg --verify reads it."""
    digest = hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest()
    return f"{digest}  {file.relative_to(root)}\n"


def packaged_unit(program: Program) -> str:
    """The unit of `conf/` with the package's places; each is there once, or nothing is made."""
    text = (ROOT / "conf" / program.unit).read_text()
    values = {f"ExecStart=/opt/tsferry/bin/{program.name} ": f"ExecStart=/usr/bin/{program.name} "}
    if "\nUser=tsferry\n" not in text:
        values |= {"\nUser=iotdb\n": "\nUser=tsferry\n", "\nGroup=iotdb\n": "\nGroup=tsferry\n"}
    for old, new in values.items():
        if text.count(old) != 1:
            found = text.count(old)
            raise ValueError(f"conf/{program.unit}: {old.strip()!r} is there {found} times")
        text = text.replace(old, new)
    return text


def settle(root: Path, epoch: int) -> None:
    """Give all below a root the modes and the times that do not hang on who built it."""
    for each in [root, *root.rglob("*")]:
        if not each.is_symlink():
            runs = each.is_dir() or each.stat().st_mode & 0o100
            each.chmod(0o755 if runs else 0o644)
        os.utime(each, (epoch, epoch), follow_symlinks=False)
