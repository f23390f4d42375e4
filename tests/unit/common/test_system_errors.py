from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import click
import pytest

from common import system_errors
from common.console import root_mistakes as mistakes
from common.console.cli import run
from common.console.root_mistakes import refuse_of_root, root_mistakes, telling_of_root
from common.durable import Tree
from common.errors import (
    EXIT_INTERNAL,
    EXIT_LOCKED,
    EXIT_NOT_LOADED,
    EXIT_UNREACHABLE,
    EXIT_USAGE,
    NotPermittedError,
)
from common.system_errors import cannot_listen, impossible_place, system_error

US = 54321


@pytest.fixture
def another(monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """This process is a user without a name, who may not use the paths that the set gets."""
    closed: set[Path] = set()
    real = os.access

    def access(path: Path, how: int, *, effective_ids: bool) -> bool:
        assert effective_ids
        return Path(path) not in closed and real(path, how)

    monkeypatch.setattr(os, "geteuid", lambda: US)
    monkeypatch.setattr(os, "access", access)
    return closed


def denied(path: Path) -> str:
    error = system_error(PermissionError(errno.EACCES, "Permission denied", str(path)))
    assert error is not None
    assert error.exit_code == EXIT_USAGE
    assert "\n" not in error.message
    return error.message


def test_a_file_of_another_user_is_said_with_user_owner_mode_and_way_out(
    tmp_path: Path, another: set[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "engine.lock"
    file.write_text("")
    file.chmod(0o640)
    another.add(file)
    monkeypatch.setattr(system_errors, "user_name", {os.getuid(): "root", US: "tsferry"}.get)
    assert denied(file) == (
        f"{file}: the user tsferry may not use it (of root, mode 0640): if a command was run as "
        f"root by mistake, sudo chown tsferry {file}"
    )
    monkeypatch.setattr(system_errors, "user_name", {os.getuid(): "ann", US: "tsferry"}.get)
    assert denied(file).endswith("run this as ann (sudo -u ann ...)")


def test_a_directory_that_may_not_be_entered_is_named(tmp_path: Path, another: set[Path]) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    another.add(tmp_path / "a")
    assert f"the user {US} may not enter {tmp_path / 'a'} (of " in denied(tmp_path / "a/b/c")


def test_nobody_is_told_to_take_over_the_directory_of_what_is_to_be_made(
    tmp_path: Path, another: set[Path]
) -> None:
    told = denied(tmp_path / "new" / "file")
    assert f"may not make anything in {tmp_path} (of " in told
    assert "chown" not in told
    (tmp_path / "there").write_text("")  # and is replaced by a rename
    assert f"may not make anything in {tmp_path} (of " in denied(tmp_path / "there")


@pytest.mark.parametrize(
    ("number", "code", "words"),
    [
        (errno.EROFS, EXIT_INTERNAL, "read-only: mount it for writing"),
        (errno.ENOSPC, EXIT_NOT_LOADED, "no space to write /x/y"),
        (errno.EDQUOT, EXIT_NOT_LOADED, "no space to write /x/y"),
        (errno.EMFILE, EXIT_INTERNAL, "LimitNOFILE"),
    ],
)
def test_what_the_system_refuses_ends_a_command_with_one_line(
    number: int, code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def command() -> None:
        raise OSError(number, os.strerror(number), "/x/y")

    assert run(command, "x", []) == code
    told = capsys.readouterr().err
    assert words in told
    assert "/x/y" in told
    assert told.count("\n") == 1


def test_what_is_not_known_stays_as_it_was() -> None:
    assert system_error(FileNotFoundError(errno.ENOENT, "No such file", "/x")) is None


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (OSError(errno.EADDRINUSE, "in use"), EXIT_LOCKED, "another process does already"),
        (OSError(errno.EADDRNOTAVAIL, "none"), EXIT_UNREACHABLE, "no such address (yet)"),
        (socket.gaierror(socket.EAI_AGAIN, "later"), EXIT_UNREACHABLE, "can be resolved: later"),
        (PermissionError(errno.EACCES, "denied"), EXIT_USAGE, "ports below 1024"),
        (OSError(errno.EAFNOSUPPORT, "no family"), EXIT_USAGE, "no family"),
    ],
)
def test_what_heals_by_waiting_is_tried_again_by_the_unit_and_nothing_else(
    error: OSError, code: int, words: str
) -> None:
    found = cannot_listen("listen.port = 80", 80, error)
    assert words in found.message
    assert found.exit_code == code
    assert found.retry is (code != EXIT_USAGE)
    for unit in ("sender", "receiver"):
        text = Path(f"conf/tsferry-{unit}.service").read_text()
        assert f"RestartPreventExitStatus={EXIT_USAGE}\n" in text
        assert "Restart=on-failure\n" in text


def test_errors_below_a_directory_name_the_whole_path(tmp_path: Path) -> None:
    with Tree(tmp_path) as tree:
        with pytest.raises(FileNotFoundError) as raised:
            tree.read("a")
        assert raised.value.filename == f"{tmp_path}/a"
        with pytest.raises(FileNotFoundError) as raised:
            tree.append_file("no/b")
        assert raised.value.filename == f"{tmp_path}/no/b"


def test_root_is_told_before_it_makes_files_in_the_directory_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    theirs, too, roots, other = (tmp_path / each for each in ("theirs", "too", "roots", "other"))
    owners = {theirs: 4711, too: 4711, roots: 0, other: 4712}
    monkeypatch.setattr(mistakes, "_stat", lambda path: _Owned(owners[path]))
    assert root_mistakes([*owners, theirs]) == [
        f"this runs as root, and 4711 owns {theirs}, {too}: a daemon of 4711 cannot "
        "change what is made now; run it by sudo -u 4711",
        f"this runs as root, and 4712 owns {other}: a daemon of 4712 cannot "
        "change what is made now; run it by sudo -u 4712",
    ]


def test_a_user_is_told_of_what_root_made_before_it_is_needed(
    tmp_path: Path, another: set[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sync" / "a").mkdir(parents=True)
    for name in ("sync/a/1.log", "sync/2.log"):
        (tmp_path / name).write_text("")
    monkeypatch.setattr(mistakes, "_stat", lambda path: _Owned(0 if path.is_file() else US))
    assert root_mistakes([tmp_path], below=[tmp_path / "sync"]) == []
    another.add(tmp_path / "sync/a/1.log")
    told = root_mistakes([tmp_path], below=[tmp_path / "sync", tmp_path / "not there"])
    assert told == [
        f"root owns {tmp_path}/sync/a/1.log, and the user {US} cannot change that; if a command "
        f"was run as root by mistake: sudo chown -R {US} {tmp_path}/sync"
    ]


def test_what_root_made_ends_a_command_at_once_only_where_it_is_in_the_way(
    tmp_path: Path, another: set[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sync" / "dc").mkdir(parents=True)
    state, lock = (tmp_path / "sync/dc" / each for each in ("looks.state", "sync.lock"))
    for each in (state, lock):
        each.write_text("")
    monkeypatch.setattr(mistakes, "_stat", lambda path: _Owned(0 if path.is_file() else US))
    another.add(state)
    refuse_of_root([tmp_path / "sync"], (".lock",))  # a rename replaces it
    another.add(lock)
    with pytest.raises(NotPermittedError, match=f"root owns {lock}, .* sudo chown -R {US} "):
        refuse_of_root([tmp_path / "sync"], (".lock",))
    another.clear()
    another.add(tmp_path / "sync/dc")
    monkeypatch.setattr(mistakes, "_stat", lambda path: _Owned(0))
    with pytest.raises(NotPermittedError, match="root owns "):
        refuse_of_root([tmp_path / "sync"], ())


def test_what_root_made_is_the_one_thing_that_is_said_where_it_is_in_the_way(
    tmp_path: Path, another: set[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = [tmp_path / "schema", tmp_path / "marker"]
    for place in ours:
        place.mkdir()
    another.update(ours)
    monkeypatch.setattr(mistakes, "_stat", lambda path: _Owned(0))
    warned: list[str] = []
    said = (
        f"root owns {ours[0]}, {ours[1]}, and the user {US} cannot change that; if a command was "
        f"run as root by mistake: sudo chown -R {US} {ours[0]} {ours[1]}"
    )

    def use(path: Path) -> None:
        with telling_of_root([tmp_path], below=ours, warn=warned.append):
            if path != tmp_path:
                raise PermissionError(errno.EACCES, "Permission denied", str(path))

    with pytest.raises(NotPermittedError) as raised:
        use(ours[0] / "engine.lock")
    assert (raised.value.message, warned) == (said, []), "two lines would have two ways out"
    with pytest.raises(PermissionError):
        use(tmp_path / "other")
    assert warned == []
    use(tmp_path)
    assert warned == [said]


def test_root_is_warned_before_it_makes_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(mistakes, "_stat", lambda path: _Owned(4711))
    warned: list[str] = []
    with telling_of_root([Path("/theirs")], below=[], warn=warned.append):
        assert len(warned) == 1


class _Owned:
    def __init__(self, owner: int) -> None:
        self.st_uid = owner
        self.st_mode = 0o100600


def test_a_path_that_can_be_none_is_said_in_one_line_with_the_user_and_the_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], another: set[Path]
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    for place, words in (
        (tmp_path / "file" / "x" / "y", f"{tmp_path}/file is no directory; name another place"),
        (tmp_path / "loop" / "x", "a link on the way leads to itself"),
        (tmp_path / ("n" * 300), "a name is longer than its file system takes"),
        (Path("/proc/x"), "/proc and /sys are the kernel's; name a directory on a disk"),
    ):

        @click.command()
        def make(place: Path = place) -> None:
            Tree(place, create=True).close()

        assert run(make, "x", []) == EXIT_USAGE
        said = capsys.readouterr().err
        assert words in said
        assert said.count("\n") == 1
        assert f"the user {US} can" in said


def test_a_file_that_is_only_missing_is_no_such_path(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        (tmp_path / "none").read_bytes()
    assert impossible_place(caught.value) is None
