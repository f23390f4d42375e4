"""The commands of the sender, and what starting one loads."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import tomllib

import pytest

import common.tsfile
from common.console.cli import run
from common.errors import NotPermittedError
from sender.cli import commands
from tests.support.architecture import ROOT
from tests.support.old_tool import UUID, OldSenderTree


@pytest.mark.parametrize("name", commands._NAMES)
def test_each_command_is_found_by_its_name(name):
    found = commands.cli.get_command(None, name)
    assert found is not None
    assert found.name == name


def test_there_is_no_other_command():
    assert commands.cli.get_command(None, "sink") is None


def test_each_name_of_the_tail_reader_is_where_it_says():
    assert common.tsfile._HOMES.keys() == set(common.tsfile.__all__)
    for name in common.tsfile.__all__:
        assert getattr(common.tsfile, name) is not None


def test_an_init_that_fails_leaves_nothing_that_the_next_one_stumbles_over(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "sender.toml"

    def init(url: str, data: str) -> int:
        arguments = ["--schema-dir", "schema", "--data-dir", data, "--url", url]
        return run(commands.cli, "x", ["--config", str(config), "init", *arguments])

    (tmp_path / "data").mkdir()
    assert init("nonsense://", "data") == 2
    assert not config.exists()
    assert init("http://127.0.0.1:1", "missing") == 2
    assert not config.exists()
    assert init("http://127.0.0.1:1", "data") == 0
    written = config.read_bytes()
    (tmp_path / "data" / ".tsferry").unlink()  # as of one that was cut off behind its first step
    assert init("http://127.0.0.1:1", "data") == 0
    assert (tmp_path / "data" / ".tsferry").exists()
    assert init("http://127.0.0.1:2", "data") == 2
    assert "is there already" in capsys.readouterr().err
    assert config.read_bytes() == written


def test_a_round_without_news_loads_nothing_to_send_with():
    needless = (
        "common.tsfile.tail", "common.tsfile.proof", "common.formats.schemawire",
        "sender.cli.check", "sender.daemon.daemon", "sender.round.compared_lists.catalogue_source",
        "sender.round.freed_files.freeing", "sender.round.look", "sender.round.task_run",
        "sender.schema.server_log", "sender.schema.text_log", "sender.select.upstream",
        "sender.send.sent_bytes.sending", "watchdog",
    )  # fmt: skip
    code = (
        "import sys; from sender.cli.commands import cli; cli.get_command(None, 'sync'); "
        f"import sender.round.round; print(*(set(sys.modules) & set({needless!r})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.split() == []


def test_init_said_twice_alike_goes_on_where_it_ended(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "other").mkdir()
    given = ["--schema-dir", "schema", "--url", "https://127.0.0.1:1", "--label", "plant 7"]
    new = ["--config", "sender.toml", "init", *given, "--data-dir", "data", "--ca-file", "c.pem"]
    assert run(commands.cli, "tsferry-sender", new) == 0
    read = tomllib.loads((tmp_path / "sender.toml").read_text())
    assert (read["label"], read["receiver"][0]["ca_file"]) == ("plant 7", str(tmp_path / "c.pem"))
    assert run(commands.cli, "tsferry-sender", [*new, "--adopt"]) == 0
    assert run(commands.cli, "tsferry-sender", [*new, "--label", "plant 8"]) == 2
    assert "is there already: change it there" in capsys.readouterr().err


NEW = ["--schema-dir", "schema", "--data-dir", "data", "--url", "https://127.0.0.1:1"]


@pytest.mark.parametrize("more", [[], ["--label", "x"], ["--data-dir", "data", "--label", "x"]])
def test_a_unit_without_a_whole_configuration_is_refused_and_nothing_is_written(
    tmp_path, monkeypatch, capsys, more
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "units").mkdir()
    init = ["--config", "etc/sender.toml", "init", "--units", "units", *more]
    assert run(commands.cli, "tsferry-sender", init) == 2
    assert "etc/sender.toml is not there, and a unit is that of" in capsys.readouterr().err
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["data", "units"]
    assert run(commands.cli, "tsferry-sender", [*init[: -len(more) or None], *NEW]) == 0
    said = capsys.readouterr().out
    assert "wrote units/tsferry-sender.service" in said.replace(f"{tmp_path}/", "")
    assert said.endswith("`systemctl daemon-reload && systemctl enable --now tsferry-sender`\n")


def test_what_was_written_is_named_from_the_root_on(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "units").mkdir()
    init = ["--config", "etc/sender.toml", "init", *NEW, "--units", "units", "--json"]
    assert run(commands.cli, "tsferry-sender", init) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["config"] == str(tmp_path / "etc" / "sender.toml")
    assert said["unit"] == str(tmp_path / "units" / "tsferry-sender.service")
    assert said["unit_user"] == pwd.getpwuid(os.getuid()).pw_name


def test_init_writes_what_was_set_and_can_be_run_again(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    init = ["--config", "s.toml", "--set", "transfer.parallel=3", "init", *NEW]
    for more in ([], [], ["--units", "sytem"]):
        assert run(commands.cli, "tsferry-sender", [*init, *more]) == (2 if more else 0)
    assert "sytem is not there" in capsys.readouterr().err
    assert not (tmp_path / "sytem").exists()
    assert "\nparallel = 3\n" in (tmp_path / "s.toml").read_text()


def test_init_beside_the_old_sync_tool_says_that_it_comes_first(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    old = OldSenderTree(tmp_path / "data" / "data", tmp_path / "data" / "system")
    old.identity()
    old.listed([])
    new = ["--schema-dir", "data/system/schema", "--data-dir", "data/data", *NEW[4:]]
    assert run(commands.cli, "tsferry-sender", ["--config", "sender.toml", "init", *new]) == 0
    said = capsys.readouterr().out
    assert f"the old sync tool was sender {UUID} here" in said
    assert f"token create --sender {UUID}`, then here `tsferry-sender adopt`, before" in said


def test_a_unit_of_an_example_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    init = ["--config", "sender.toml", "init", "--label", "x"]
    assert run(commands.cli, "tsferry-sender", init) == 0
    assert run(commands.cli, "tsferry-sender", [*init, "--units", "units"]) == 2
    assert "is an example as yet" in capsys.readouterr().err
    assert (tmp_path / "sender.toml").exists()
    assert not (tmp_path / "units").exists()


@pytest.mark.parametrize("token", [None, "", "tsf_1_abc"])
def test_what_comes_after_init_is_a_token_only_where_there_is_none(
    tmp_path, monkeypatch, capsys, token
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    if token is not None:
        (tmp_path / "centre.token").write_text(token)
    init = ["--config", "sender.toml", "init", *NEW, "--token-file", "centre.token"]
    assert run(commands.cli, "tsferry-sender", init) == 0
    said = capsys.readouterr().out.splitlines()[-1]
    assert said.startswith("next: ")
    assert said.endswith("`tsferry-sender check`")
    assert ("token create" in said) == (not token)


def test_a_duration_that_is_none_is_shown_with_one_that_is(tmp_path, capsys):
    given = ["--set", f"schema_dir={tmp_path}", "--set", f'data_dirs=["{tmp_path}"]']
    url = ["--set", "receiver[0].name=dc1", "--set", "receiver[0].url=http://127.0.0.1:1"]
    assert run(commands.cli, "tsferry-sender", [*given, *url, "free", "--keep", "xyz"]) == 2
    assert "--keep xyz: not a duration; expected such as 30d" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("sync",), ("start",), ("recover",), ("resync",), ("quarantine", "retry", "--all"),
        ("free",), ("init",),
    ],
    ids=lambda words: words[0],
)  # fmt: skip
def test_each_command_that_writes_says_first_what_root_made_by_mistake(
    tmp_path, monkeypatch, capsys, words
):
    given = ["--schema-dir", "schema", "--data-dir", "data", "--url", "http://127.0.0.1:1"]
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    config = ["--config", str(tmp_path / "sender.toml")]
    assert run(commands.cli, "tsferry-sender", [*config, "init", *given]) == 0

    def refuse(*places):
        raise NotPermittedError("root was here")

    monkeypatch.setattr("common.console.root_mistakes.refuse_of_root", refuse)
    before = sorted((tmp_path / "schema").rglob("*"))
    assert run(commands.cli, "tsferry-sender", [*config, *words]) == 2
    assert "root was here" in capsys.readouterr().err
    assert sorted((tmp_path / "schema").rglob("*")) == before
