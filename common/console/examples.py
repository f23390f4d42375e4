"""The commented configurations and systemd units of `conf/`, which `init` starts from."""

from __future__ import annotations

import grp
import json
import os
import pwd
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from common.config.specifiers import as_written
from common.durable import Tree
from common.errors import TsferryError, UsageError
from common.system_errors import said_of, user_name

__all__ = [
    "WrittenUnit",
    "configuration",
    "taken_back_on_failure",
    "toml",
    "write_alerts",
    "write_unit",
]

_HIDDEN = {
    "ProtectHome=": (("/home", "/root", "/run/user"), "read-only"),
    "PrivateTmp=": (("/tmp", "/var/tmp"), "no"),  # noqa: S108 - nothing is put there
}
"""What settings of the units hide, and as what they do not."""
_GIVEN_BY_SYSTEMD = ("/run/tsferry", "/var/log/tsferry")
"""The units' RuntimeDirectory and LogsDirectory."""


def configuration(name: str, values: Mapping[str, str]) -> str:
    """The commented `<name>.toml` with some keys set.

    Args:
        name: `sender` or `receiver`.
        values: of keys as TOML, each by its table and name: `schema_dir`, `listen.host`.
    """
    text = _shipped(f"{name}.toml")
    for key, value in values.items():
        table, _, last = key.rpartition(".")
        before, found, behind = text.partition(f"[{table}]\n" if table else "\n")
        own, next_one, rest = behind.partition("\n[")
        assert found, f"{key}: there is no table {table}"
        text = "".join((before, found, _filled(own, {f"{last} = ": value}), next_one, rest))
    return text


def toml(value: str | Path | Sequence[str]) -> str:
    """A text, or a list of them, as TOML: strings of JSON are basic strings.

    A path counts from the working directory, as the shell completes it. A percent sign is one, and
    no specifier.
    """
    text = str(value.absolute()) if isinstance(value, Path) else value
    return as_written(json.dumps(text, ensure_ascii=False))


_ON_A_LINE = re.compile(r"[^\x00-\x1f\x7f]*")
"""Lists of paths in a unit know no escape for what is not."""


class WrittenUnit(NamedTuple):
    """A unit of systemd, whom it runs as, and the directory that is his.

    What it reads and he may not read is `unread`: it would not come up.
    """

    file: Path
    user: str
    directory: Path
    unread: tuple[Path, ...] = ()

    def line(self) -> str:
        """What is said of it: that it has all rights is no accident that nobody hears of."""
        said = f"wrote {self.file}, which runs as {self.user}"
        if self.unread:
            files = " ".join(map(str, self.unread))
            return f"{said}, who may not read what it reads: sudo chown {self.user} {files}"
        if self.user != user_name(0):
            return said
        return (
            f"{said}, as {self.directory} is root's: chown that to who is to run it, remove the "
            "unit, and write it again"
        )


def write_unit(
    into: Path,
    name: str,
    subcommand: str,
    config: Path,
    writable: Sequence[Path],
    reads: Iterable[Path | None] = (),
) -> WrittenUnit:
    """Write the systemd unit of a program that is installed here; nothing is overwritten.

    Args:
        into: the directory, as in /etc/systemd/system; one that is missing is a typing error.
        name: of the command.
        subcommand: that runs until it is stopped.
        config: its configuration, absolute.
        writable: directories that it writes to; the unit has the user that owns the first.
        reads: files that it reads beside its configuration; None for one that is not set.

    Returns:
        the unit's file, and its user.

    Raises:
        UsageError: another unit is there, or it cannot be written; or a path has a character that
            would end its line.
    """
    command = [str(_command(name)), "--config", str(config), subcommand]
    paths = [each for each in dict.fromkeys(writable) if not _is_below(each, _GIVEN_BY_SYSTEMD)]
    for each in (*command, *map(str, paths)):
        if not _ON_A_LINE.fullmatch(each):
            raise UsageError(
                f"{each!r} has control characters: expected a path that a unit of systemd can have"
            )
    there = paths[0].stat()
    values = {
        "Documentation=": config.as_uri().replace("%", "%%"),
        "RequiresMountsFor=": " ".join(map(_quoted, paths)),
        "ExecStart=": " ".join(_quoted(each).replace("$", "$$") for each in command),
        "User=": (user := user_name(there.st_uid)),
        "Group=": _group(there.st_gid),
        "ReadWritePaths=": " ".join(map(_quoted, paths)),
    }
    for setting, (places, open_) in _HIDDEN.items():
        if any(_is_below(each, places) for each in (Path(command[0]), config, *paths)):
            values[setting] = open_
    file = f"{name}.service"
    written = _write(into, file, _filled(_shipped(file), values))
    files = [config, *(each for each in reads if each is not None)]
    return WrittenUnit(written, user, paths[0], _unread(files, there))


def _unread(files: Iterable[Path], owner: os.stat_result) -> tuple[Path, ...]:
    """Those that the owner of a directory may not read, where root writes his unit."""
    if os.geteuid() != 0 or owner.st_uid == 0:
        return ()
    try:
        groups = os.getgrouplist(pwd.getpwuid(owner.st_uid).pw_name, owner.st_gid)
    except KeyError:  # a number of a container
        groups = [owner.st_gid]

    def may_read(file: Path) -> bool:
        # As the kernel judges it: by all directories on the way, and by access lists.
        try:
            done = subprocess.run(  # noqa: S603 - paths, and no shell
                ["/usr/bin/test", "-r", str(file)],
                check=False,
                cwd="/",
                user=owner.st_uid,
                group=owner.st_gid,
                extra_groups=groups,
            )
        except OSError:
            return True
        return done.returncode == 0

    return tuple(each for each in dict.fromkeys(files) if each.exists() and not may_read(each))


def write_alerts(into: Path) -> Path:
    """Write the rules for Prometheus, `tsferry-alerts.yml`; nothing is overwritten.

    Args:
        into: the directory, as in /etc/prometheus; one that is missing is a typing error.

    Returns:
        the file.

    Raises:
        UsageError: others are there, or it cannot be written.
    """
    return _write(into, "tsferry-alerts.yml", _shipped("alerts.yml"))


def _write(into: Path, file: str, text: str) -> Path:
    content = text.encode()
    if not os.path.lexists(into):
        # systemd and Prometheus look into directories of their own, which are there.
        raise UsageError(
            f"{into} is not there, and {file} is for a directory that is; make it first"
        )
    try:
        with Tree(into.absolute()) as tree:
            if tree.exists(file) and tree.read(file) != content:
                raise UsageError(f"{tree.path / file} is there already; nothing was changed")
            tree.write_atomic(file, content)
            return tree.path / file
    except OSError as error:
        raise UsageError(f"{into / file} cannot be written: {said_of(error)}") from error


@contextmanager
def taken_back_on_failure(*made: Path) -> Iterator[Callable[[Path], None]]:
    """Remove what this `init` makes if it fails; the next one does not stumble over it.

    Its value is told of each file just before that is written: one that is there by then is
    somebody else's, and stays.

    Args:
        made: files and directories that it may make. What is there before stays, and so do a
            directory in which somebody else has put something meanwhile, and a file of theirs.
    """
    missing = dict.fromkeys(new for each in made for new in _not_there(each.absolute()))
    written: set[Path] = set()

    def is_written(path: Path) -> None:
        if not os.path.lexists(path):
            written.add(path.absolute())

    try:
        yield is_written
    except (Exception, KeyboardInterrupt):
        for each in sorted(missing, key=lambda path: len(path.parts), reverse=True):
            with suppress(OSError, TsferryError), Tree(each.parent) as tree:
                found = tree.stat(each.name)
                if found is not None and stat.S_ISDIR(found.st_mode):
                    tree.remove_empty(each.name)
                elif found is not None and each in written:
                    tree.unlink(each.name)
        raise


def _not_there(path: Path) -> Iterator[Path]:
    """A path and those above it, as far as there is nothing yet."""
    for each in (path, *path.parents):
        if os.path.lexists(each):
            return
        yield each


def _shipped(name: str) -> str:
    """A file of `conf/`: beside the packages that a wheel installs it is called `tsferry_conf`.

    Not below `common`: of an editable installation that alone would be among the other packages,
    and a program without our sources would take it for the package.
    """
    beside = Path(__file__).parents[2]
    found = beside / "tsferry_conf" / name
    return (found if found.is_file() else beside / "conf" / name).read_text(encoding="utf-8")


def _filled(text: str, values: Mapping[str, str]) -> str:
    for begin, value in values.items():
        line = f"{begin}{value}".replace("\\", r"\\")
        text, count = re.subn(rf"(?m)^#?{re.escape(begin)}.*$", line, text)
        assert count == 1, f"{begin}: on {count} lines"
    return text


def _command(name: str) -> Path:
    """Where the command is: what was called, or beside the interpreter."""
    called = Path(os.path.abspath(sys.argv[0]))
    return called if called.name == name else Path(sys.executable).with_name(name)


def _is_below(path: Path, places: Sequence[str]) -> bool:
    return any(path.is_relative_to(place) for place in places)


def _quoted(text: str | Path) -> str:
    """As one word of a unit file."""
    escaped = str(text).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"' if re.search(r"[\s\"'\\;]", escaped) else escaped


def _group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)
