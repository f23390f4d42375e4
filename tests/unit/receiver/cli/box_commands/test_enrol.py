"""`token enrol` with and without a server, and when it is cut off."""

import json
import stat

import pytest

from common.console.cli import run
from common.errors import UnreachableError
from receiver.cli.box_commands import enrol as enrol_module
from receiver.cli.commands import cli


@pytest.fixture
def command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(cli, "tsferry-receiver", ["--config", "receiver.toml", "init"]) == 0

    def command(*arguments, code=0):
        capsys.readouterr()
        got = run(cli, "tsferry-receiver", ["--config", "receiver.toml", *arguments])
        out = capsys.readouterr()
        assert got == code, (got, out)
        return out.out + out.err

    return command


@pytest.fixture
def listed(tmp_path):
    file = tmp_path / "edges.csv"
    file.write_text("label,scope\nplant-8,root.plant8.**\nplant-9,root.plant9.**\n")
    return file


def enrolled(command, *more):
    answer = json.loads(command("token", "enrol", "edges.csv", "--into", "edges", "--json", *more))
    return {each["label"]: each for each in answer["edges"]}


def tokens(command):
    return {each["id"]: each for each in json.loads(command("token", "list", "--json"))["tokens"]}


def test_each_edge_gets_a_token_and_a_uuid_that_only_the_owner_reads(command, listed, tmp_path):
    made = enrolled(command, "--expires", "365d", "--no-deletes")
    known = tokens(command)
    assert {each["state"] for each in made.values()} == {"made"}
    for label, edge in made.items():
        token, uuid = (tmp_path / "edges" / f"{label}.{each}" for each in ("token", "uuid"))
        assert {stat.S_IMODE(each.stat().st_mode) for each in (token, uuid)} == {0o600}
        assert token.read_text().startswith(f"tsf_{edge['token']}_")
        assert uuid.read_text() == f"{edge['sender']}\n"
        there = known[edge["token"]]
        assert (there["sender"], there["note"]) == (edge["sender"], label)
        assert there["expires"]
        assert not there["allow_deletes"]
        assert there["scope"] == [f"root.{label.replace('-', '')}.**"]


def test_a_list_that_grew_is_given_again_and_what_is_there_stays(command, listed, tmp_path):
    before = enrolled(command)
    text = (tmp_path / "edges/plant-8.token").read_text()
    listed.write_text(listed.read_text() + "plant-10,\n")
    after = enrolled(command)
    assert {label: each["state"] for label, each in after.items()} == {
        "plant-8": "kept",
        "plant-9": "kept",
        "plant-10": "made",
    }
    assert after["plant-8"]["token"] == before["plant-8"]["token"]
    assert (tmp_path / "edges/plant-8.token").read_text() == text
    assert len(tokens(command)) == 3


def test_a_list_that_is_wrong_makes_nothing(command, listed, tmp_path):
    listed.write_text(listed.read_text() + "plant-8,\n")
    said = command("token", "enrol", "edges.csv", "--into", "edges", code=2)
    assert "edges.csv: line 4: label plant-8 is that of line 2, too" in said
    assert not (tmp_path / "edges").exists()
    listed.write_text("label\n")
    assert enrolled(command) == {}
    assert tokens(command) == {}


def test_what_was_cut_off_goes_on_under_the_same_uuid(command, listed, tmp_path, monkeypatch):
    make = enrol_module.make_token
    calls = []

    def fail_once(*given, **more):
        calls.append(more)
        if len(calls) == 2:
            raise UnreachableError("cut off")
        return make(*given, **more)

    monkeypatch.setattr(enrol_module, "make_token", fail_once)
    command("token", "enrol", "edges.csv", "--into", "edges", code=4)
    uuid = (tmp_path / "edges/plant-9.uuid").read_text().strip()
    again = enrolled(command)
    assert {label: each["state"] for label, each in again.items()} == {
        "plant-8": "kept",
        "plant-9": "made",
    }
    assert again["plant-9"]["sender"] == uuid


def test_a_token_whose_file_is_elsewhere_is_not_made_twice_in_silence(command, listed, tmp_path):
    first = enrolled(command)
    said = command("token", "enrol", "edges.csv", "--into", "elsewhere", code=2)
    assert f"line 2: plant-8: it has token {first['plant-8']['token']} already" in said
    assert len(tokens(command)) == 2
    command("token", "enrol", "edges.csv", "--into", "elsewhere", "--renew")
    made = (tmp_path / "elsewhere/plant-8.uuid").read_text().strip()
    assert made == first["plant-8"]["sender"]
    assert len(tokens(command)) == 4
