"""The directories of a receiver whose place another one took, by etcd: an old copy, and said so."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from common.config import load
from common.errors import ConflictError, UsageError
from receiver import open_engine as opening
from receiver.config import ReceiverConfig
from receiver.open_engine import open_engine
from receiver.spark import local_catalogue
from receiver.spark.catalogue_opening import open_catalogue
from receiver.spark.verify.committed import CommittedFiles
from receiver.spark.verify.file_scope import FileScope
from tests.support.etcd import Etcd, Settings
from tests.support.followed import step
from tests.support.machine import Machine


@dataclass(frozen=True)
class Old:
    """The first of two machines: it has two commits, etcd has four."""

    machine: Machine
    second: ReceiverConfig

    @property
    def config(self) -> ReceiverConfig:
        return _config(self.machine)


def _config(machine: Machine) -> ReceiverConfig:
    return load(ReceiverConfig, file=machine.file, env_prefix="NONE", environ={}, flags={}).value


def _commit(config: ReceiverConfig, *numbers: int) -> None:
    with open_engine(config) as engine:
        for each in numbers:
            engine.commit(step(each))


@pytest.fixture
def settings(shared_etcd: Etcd) -> Settings:
    return shared_etcd.settings()


@pytest.fixture
def old(
    tmp_path: Path,
    settings: Settings,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Old:
    monkeypatch.setattr(opening, "_FLUSHED", 0.0)
    (tmp_path / "bucket").mkdir()
    machines = [Machine(tmp_path / name, tmp_path / "bucket", capsys) for name in ("one", "two")]
    for each in machines:
        each.over_etcd(settings)
    first, second = map(_config, machines)
    _commit(first, 0, 1)
    return Old(machines[0], second)


def test_a_copy_that_has_all_is_shown_without_a_word(
    old: Old, caplog: pytest.LogCaptureFixture
) -> None:
    assert "an old copy" not in old.machine.command("status", code=4)
    assert len(old.machine.command("senders").splitlines()) >= 3
    assert caplog.text == ""
    with open_catalogue(str(old.machine.file)) as found:
        assert found.newest


def test_what_is_shown_of_an_old_copy_is_said_to_be_one(
    old: Old, caplog: pytest.LogCaptureFixture
) -> None:
    with open_engine(old.second) as engine:
        engine.commit(step(2))
        engine.commit(step(3))
        for command in (["senders"], ["fsck"], ["sql", "SHOW STORAGE GROUP"], ["mlog", "dump"]):
            caplog.clear()
            old.machine.command(*command)
            assert "is an old copy" in caplog.text, command
            assert "has 2 commits more; ask the receiver that is at work there" in caplog.text
        status = json.loads(old.machine.command("status", "--json", code=4))
        assert "is an old copy" in status["problem"]
    caplog.clear()
    old.machine.command("senders")
    assert "no receiver is at work there" in caplog.text


def test_nothing_is_made_of_an_old_copy(
    old: Old,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _commit(old.second, 2, 3)
    said = old.machine.command("backup", str(tmp_path / "backup"), code=3)
    assert "is an old copy" in said
    assert not (tmp_path / "backup").exists()
    assert "is an old copy" in old.machine.command("storage", "takeover", code=3)
    with pytest.raises(ConflictError, match="is an old copy"):
        open_catalogue(str(old.machine.file))
    with pytest.raises(ConflictError, match="is an old copy"):
        CommittedFiles(old.config, FileScope())
    assert "is an old copy" in old.machine.command("export", str(tmp_path / "export"), code=3)
    caplog.clear()
    alone = str(old.config.schema_dir)
    with open_catalogue(alone) as found:  # which says nothing of etcd
        said = f"{alone} is read as a copy as of commit {found.newest}, not as the receiver that"
    assert [each.getMessage()[: len(said)] for each in caplog.records] == [said]
    monkeypatch.setenv("TSFERRY_RECEIVER_CONFIG", str(old.machine.file))
    with pytest.raises(UsageError, match=f"{old.machine.file} keeps the commits of this directory"):
        open_catalogue(alone)


def test_a_catalogue_that_is_open_sees_that_it_has_become_an_old_copy(
    old: Old, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_catalogue, "_ASKED_AGAIN", 0.0)
    with open_catalogue(str(old.machine.file)) as found:
        found.refresh()
        _commit(old.second, 2)
        with pytest.raises(ConflictError, match="is an old copy"):
            found.refresh()
        _commit(old.config)  # it starts, and has what it lacked
        found.refresh()


def test_without_etcd_nobody_knows_and_that_is_said(
    old: Old, caplog: pytest.LogCaptureFixture
) -> None:
    text = old.machine.file.read_text()
    begin = text.index("endpoints = ")
    end = text.index("\n", begin)
    old.machine.file.write_text(f'{text[:begin]}endpoints = ["http://127.0.0.1:9"]{text[end:]}')
    old.machine.command("senders")
    assert "whether there are newer commits is not known: etcd does not answer" in caplog.text


def test_another_engine_is_told_apart(
    old: Old, tmp_path: Path, caplog: pytest.LogCaptureFixture, shared_etcd: Etcd
) -> None:
    schema = old.config.schema_dir
    shutil.rmtree(schema)
    before = old.machine.file.read_text()
    old.machine.over_etcd(shared_etcd.settings())
    changed = old.machine.file.read_text().removeprefix(before)
    old.machine.file.write_text(before.split("[metadata]", maxsplit=1)[0] + changed)
    _commit(old.config, 0)
    old.machine.file.write_text(before)
    old.machine.command("senders")
    assert "has the commits of another engine" in caplog.text
