"""An `init` that fails leaves nothing that the next one would stumble over, at both ends."""

from __future__ import annotations

from pathlib import Path

import pytest

import receiver.cli.box_commands.init
import receiver.cli.commands
import sender.cli.commands
import sender.cli.init
from common.console.cli import run

OTHER = "tsferry data directory 1\nsender a45b6e63eb434aad891264b5c08d448e\n"


def tree_of(root: Path) -> set[str]:
    return {str(each.relative_to(root)) for each in root.rglob("*")}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where one data directory may be had, and the other one not."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good").mkdir()
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / ".tsferry").write_text(OTHER)
    (tmp_path / "file").write_text("")
    (tmp_path / "token").write_text("x")
    return tmp_path


def of_sender(*more: str) -> int:
    arguments = ["--config", "etc/new/sender.toml", "init", "--schema-dir", "system/schema"]
    arguments += ["--url", "http://127.0.0.1:1", "--token-file", "token", *more]
    return run(sender.cli.commands.cli, "tsferry-sender", arguments)


def of_receiver(*more: str) -> int:
    arguments = ["init", "--schema-dir", "a/b/schema", *more, "etc/new/receiver.toml"]
    return run(receiver.cli.commands.cli, "tsferry-receiver", arguments)


@pytest.mark.parametrize("second", ["taken", "missing", "file/x"])
def test_a_sender_that_cannot_have_a_directory_has_no_identity_and_no_markers(
    root: Path, second: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree_of(root)
    assert of_sender("--data-dir", "good", "--data-dir", second) == 2
    assert tree_of(root) == before
    assert capsys.readouterr().err.count("\n") == 1
    assert of_sender("--data-dir", "good") == 0, "and the next one has nothing in its way"


def test_a_receiver_that_cannot_have_a_directory_has_none(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree_of(root)
    assert of_receiver("--data-dir", "c/data", "--data-dir", "file/x") == 2
    assert tree_of(root) == before
    assert capsys.readouterr().err.count("\n") == 1
    assert of_receiver("--data-dir", "c/data") == 0


@pytest.mark.parametrize(("init", "name"), [(of_sender, "sender"), (of_receiver, "receiver")])
def test_where_a_unit_is_in_the_way_nothing_else_is_made(root: Path, init, name: str) -> None:
    (root / "units").mkdir()
    (root / "units" / f"tsferry-{name}.service").write_text("of somebody else")
    before = tree_of(root)
    assert init("--data-dir", "good", "--units", "units") == 2
    assert tree_of(root) == before


def test_what_is_there_before_stays(root: Path) -> None:
    assert of_sender("--data-dir", "good") == 0
    before = {path: (root / path).read_bytes() for path in tree_of(root) if (root / path).is_file()}
    assert of_sender("--data-dir", "good", "--data-dir", "taken") == 2
    assert {path: (root / path).read_bytes() for path in before} == before
    assert tree_of(root) >= before.keys()


def test_what_somebody_else_makes_meanwhile_stays(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def beside(where, name: str, init) -> None:
        real = getattr(where, name)

        def first(*arguments):
            monkeypatch.setattr(where, name, real)
            assert init() == 0
            return real(*arguments)

        monkeypatch.setattr(where, name, first)

    beside(
        receiver.cli.box_commands.init, "configuration", lambda: of_receiver("--data-dir", "c/data")
    )
    assert of_receiver("--data-dir", "c/data") == 2, "it is there already"
    assert (root / "etc/new/receiver.toml").is_file()

    def other() -> int:
        arguments = ["--config", "other.toml", "init", "--schema-dir", "system/schema"]
        arguments += ["--url", "http://127.0.0.1:1", "--token-file", "token", "--data-dir", "good"]
        return run(sender.cli.commands.cli, "tsferry-sender", arguments)

    beside(sender.cli.init, "_identify", other)
    assert of_sender("--data-dir", "good", "--data-dir", "taken") == 2
    assert (root / "system/schema/sync/uuid.txt").is_file(), "the identity of the other call"
    assert (root / "good/.tsferry").is_file()
    assert not (root / "etc/new/sender.toml").exists()
