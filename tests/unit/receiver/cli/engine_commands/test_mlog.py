"""`mlog` and `mtree`: schemas as text, with a server and without one."""

import json

import msgspec
import pytest

from common.formats.tlogtext import read_slot, write_slot
from receiver.node import Node
from tests.support.schemas import parsed
from tests.unit.receiver.cli import test_commands as base

command, config, filled, running = base.command, base.config, base.filled, base.running

LOG = """2,root.plant
10,root.plant,86400000
0,root.plant.d1.s1,3,2,1,max_point_number=2,temperature,0
0,root.plant.d,2.s1,2,0,1,,,
0,root.plant.d1.gone,1,0,1,,,
1,root.plant.d1.gone
"""


@pytest.fixture(params=["a server", "directories"])
def either(request, config, filled):
    if request.param == "a server":
        request.getfixturevalue("running")
    return request.param


@pytest.fixture
def log(tmp_path):
    (tmp_path / "mlog.txt").write_text(LOG + "0,root.plant.d1.torn,1,0")
    (tmp_path / "tlog.txt").write_bytes(write_slot({"unit": "c"}, {"maker": "x"}))
    return tmp_path / "mlog.txt"


def test_a_log_of_iotdb_goes_in_and_comes_out_again(either, command, log, tmp_path):
    done = json.loads(command("mlog", "import", str(log), "--tlog", "tlog.txt", "--json"))
    assert (done["applied"], done["failed"]) == (3, [])
    text = command("mlog", "dump", "--text", "--tlog", "out.txt")
    lines = text.splitlines()
    assert "2,root.plant" in lines
    assert "10,root.plant,86400000" in lines
    assert "0,root.plant.d1.s1,3,2,1,max_point_number=2,temperature,0" in lines
    assert "0,root.plant.`d,2`.s1,2,0,1,,," in lines
    slot = read_slot((tmp_path / "out.txt").read_bytes())
    assert (slot.tags, slot.attributes) == ({"unit": "c"}, {"maker": "x"})
    again = json.loads(command("mlog", "import", str(log), "--tlog", "tlog.txt", "--json"))
    assert (again["applied"], again["changes"]) == (3, 0)


def test_a_dry_run_makes_nothing(either, command, log):
    before = command("mlog", "dump", "--text")
    out = command("mlog", "import", str(log), "--dry-run")
    assert "3 storage groups and series would be there" in out
    assert "1 series have tags in a tlog" in out
    assert command("mlog", "dump", "--text") == before


def test_what_cannot_be_made_is_named_and_the_rest_made(either, command, log):
    log.write_text("2,root.plant\nrubbish\n0,root.sg.d1.s1,3,2,1,,,\n0,root.plant.d.s,1,0,0,,,\n")
    out = command("mlog", "import", str(log), code=1)
    assert "2 not" in out
    assert "rubbish" in out
    assert "it has type INT64 here, FLOAT in the schema" in out
    assert "root.plant.d.s" in command("mlog", "dump", "--text")


def test_a_file_that_is_not_there_is_named(command):
    assert "no such file" in command("mlog", "import", "nowhere.txt", code=2)


def test_the_engines_own_log_comes_out_as_json(either, command):
    commits = [json.loads(line) for line in command("mlog", "dump").splitlines()]
    kinds = [op["op"] for commit in commits for op in commit["ops"]]
    assert {"FileLoaded", "SeriesLoaded", "TaskDone"} <= set(kinds)
    loaded = next(op for each in commits for op in each["ops"] if op["op"] == "SeriesLoaded")
    assert loaded["devices"][0]["types"] == [2]
    times = [commit["ts"] for commit in commits]
    assert times == sorted(times)


def test_the_tree_has_its_children_first(either, command, log):
    command("mlog", "import", str(log), "--tlog", "tlog.txt")
    lines = command("mtree", "dump", "--tlog", "out.txt").splitlines()
    assert lines[-1] == "0,root,3"
    assert "1,plant,86400000,2" in lines
    leaf = "2,s1,temperature,3,2,1,max_point_number:2;,0,0"
    assert lines.index(leaf) < lines.index("0,d1,1") < lines.index("1,plant,86400000,2")
    assert lines.index("2,s1,,2,0,1,,-1,0") + 1 == lines.index("0,`d,2`,1")


def test_a_dump_goes_into_an_empty_receiver(config, filled, command, log, tmp_path):
    command("mlog", "import", str(log), "--tlog", "tlog.txt")
    dumped = command("mlog", "dump", "--text", "--tlog", "one.tlog")
    (tmp_path / "dump.txt").write_text(dumped)
    places = {"schema_dir": tmp_path / "other", "data_dirs": (tmp_path / "others",)}
    other = ("--set", f"schema_dir={tmp_path / 'other'}", "--set", "data_dirs=others")
    with Node.open(msgspec.structs.replace(config, **places)):
        pass
    out = command(*other, "mlog", "import", "dump.txt", "--tlog", "one.tlog")
    assert "0 not" in out  # a name with control characters, which only a file could bring, too
    again = command(*other, "mlog", "dump", "--text", "--tlog", "two.tlog")
    one, two = ((tmp_path / name).read_bytes() for name in ("one.tlog", "two.tlog"))
    whole = parsed(dumped.encode(), one, "root")
    assert any("\x1b" in path for path in whole)
    assert parsed(again.encode(), two, "root") == whole


def test_a_tree_goes_into_an_empty_receiver(config, filled, command, log, tmp_path):
    command("mlog", "import", str(log), "--tlog", "tlog.txt")
    dumped = command("mtree", "dump", "--tlog", "one.tlog")
    (tmp_path / "tree.txt").write_text(dumped)
    places = {"schema_dir": tmp_path / "other", "data_dirs": (tmp_path / "others",)}
    other = ("--set", f"schema_dir={tmp_path / 'other'}", "--set", "data_dirs=others")
    with Node.open(msgspec.structs.replace(config, **places)):
        pass
    arguments = (*other, "mtree", "import", "tree.txt", "--tlog", "one.tlog", "--json")
    done = json.loads(command(*arguments, code=1))
    (left,) = done["failed"]  # its control characters are written out in a tree
    assert "not sure" in left["record"]
    again = command(*other, "mtree", "dump", "--tlog", "two.tlog")
    assert (tmp_path / "two.tlog").read_bytes() == (tmp_path / "one.tlog").read_bytes()
    missing = set(dumped.splitlines()) - set(again.splitlines())
    assert "2,s1,temperature,3,2,1,max_point_number:2;,0,0" in again.splitlines()
    assert {line.split(",")[0] for line in missing} <= {"0", "1", "2"}
    assert len(missing) < 6, missing


def test_what_is_no_tree_is_named_and_nothing_made(command, filled, tmp_path):
    (tmp_path / "tree.txt").write_text("1,plant,5,0\nnothing\n0,root,1\n")
    before = command("mtree", "dump")
    assert "tree.txt, byte 12" in command("mtree", "import", "tree.txt", code=1)
    assert command("mtree", "dump") == before


def test_text_options_belong_together(command, filled):
    assert "--text" in command("mlog", "dump", "--tlog", "x", code=2)
    assert "two forms" in command("mlog", "dump", "--text", "--json", code=2)


def test_the_tree_as_json_has_an_object_a_line(either, command):
    found = [json.loads(line) for line in command("mtree", "dump", "--json").splitlines()]
    assert [each["is"] for each in found] == ["group", "group", "series", "series", "series"]
    assert found[0]["path"] == "root.b"
