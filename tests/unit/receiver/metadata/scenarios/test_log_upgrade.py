"""A text log of an older database, with its tags, is taken in and found by them; so is our own."""

import struct

import pytest

from common.console.cli import run as run_command
from receiver.cli.commands import cli
from receiver.metadata.engine import Engine
from tests.support import metadata as files
from tests.support.asking import column, rows, run

SLOT = 700


def slot(tags, attributes):
    """A place in a tlog.txt: two maps of (int32 length, UTF-8), big-endian, then zeros."""
    content = b""
    for kind in (tags, attributes):
        content += struct.pack(">i", len(kind))
        for text in (each for pair in kind.items() for each in pair):
            content += struct.pack(">i", len(text.encode())) + text.encode()
    return content.ljust(SLOT, b"\0")


@pytest.fixture
def node(tmp_path):
    return made(tmp_path)


def made(place):
    """A receiver's configuration, and its engine with nothing in it."""
    (place / "data").mkdir()
    (place / "receiver.toml").write_text(
        f'schema_dir = "{place / "schema"}"\ndata_dirs = ["{place / "data"}"]\n'
    )
    Engine.open(place / "schema").close()
    return place


@pytest.fixture
def call(capsys):
    """Run a command: (exit code, what it wrote)."""

    def call(node, *arguments):
        config = str(node / "receiver.toml")
        code = run_command(cli, "tsferry-receiver", ["--config", config, *arguments])
        written = capsys.readouterr()
        return code, written.out or written.err

    return call


@pytest.fixture
def take_in(call):
    def take_in(node, mlog, tlog=b""):
        (node / "mlog.txt").write_text(mlog, encoding="utf-8")
        (node / "tlog.txt").write_bytes(tlog)
        return call(node, "mlog", "import", f"{node}/mlog.txt", "--tlog", f"{node}/tlog.txt")

    return take_in


def test_a_text_log_is_taken_in_with_its_tags(node, take_in):
    code, said = take_in(
        node, "2,root.sg\n0,root.sg.d.s,0,0,0,,,0\n", slot({"name": "IoTDB"}, {"type": "tsDB"})
    )
    assert code == 0, said
    with Engine.open(node / "schema") as engine:
        (row,) = rows(engine, "show timeseries root.** where name contains DB")
        assert row["timeseries"] == "root.sg.d.s"
        assert (row["dataType"], row["encoding"]) == ("BOOLEAN", "PLAIN")
        assert (row["tags"], row["attributes"]) == ({"name": "IoTDB"}, {"type": "tsDB"})


def test_its_end_state_counts_not_what_was_deleted_on_the_way(node, take_in):
    mlog = (
        "2,root.turbine\n"
        "0,root.turbine.d1.s1,3,2,1,,temperature,0\n"
        "0,root.turbine.d1.s2,1,2,1,,,\n"
        "10,root.turbine,5000\n"
        "1,root.turbine.d1.s2\n"
        "0,root.turbine.d1.s2,5,0,0,,,\n"
        "13,root.turbine.d1.s1,heat\n"
        "12,root.turbine.d1.s1,700\n"
        "2,root.gone\n"
        "0,root.gone.d.s,1,2,1,,,\n"
        "1,root.gone\n"
        "0,root.turbine.d9.s9,1,2"  # a last line without its end never happened
    )
    code, said = take_in(node, mlog, slot({"old": "1"}, {}) + slot({"unit": "c"}, {"maker": "x"}))
    assert code == 0, said
    with Engine.open(node / "schema") as engine:
        shown = [
            (r["timeseries"], r["dataType"], r["alias"]) for r in rows(engine, "show timeseries")
        ]
        assert shown == [
            ("root.turbine.d1.s1", "FLOAT", "heat"),
            ("root.turbine.d1.s2", "TEXT", None),
        ]
        assert column(engine, "show timeseries where unit=c") == ["root.turbine.d1.s1"]
        assert column(engine, "show tag keys") == ["unit"]
        assert [tuple(r.values()) for r in rows(engine, "show ttl")] == [("root.turbine", 5000)]


def test_names_with_commas_and_other_scripts_are_read_from_the_right(node, take_in):
    code, said = take_in(
        node,
        '2,root.turbine\n0,root.turbine."d,1"."s,1,2",3,2,1,,,\n0,root.turbine.温.度,1,2,1,,,\n',
    )
    assert code == 0, said
    with Engine.open(node / "schema") as engine:
        assert column(engine, "show timeseries") == [
            "root.turbine.`d,1`.`s,1,2`",
            "root.turbine.温.度",
        ]


def test_a_line_that_is_none_is_told_and_the_rest_is_taken_in(node, take_in):
    code, said = take_in(
        node, "2,root.a\nnonsense\n0,root.a.d.s1,99,0,0,,,\n0,root.a.d.s2,1,2,1,,,\n"
    )
    assert code == 1
    assert "nonsense" in said
    assert "root.a.d.s1" in said
    with Engine.open(node / "schema") as engine:
        assert column(engine, "show timeseries") == ["root.a.d.s2"]


def test_what_is_dumped_is_taken_in_again_as_the_same(node, call, take_in, tmp_path_factory):
    with Engine.open(node / "schema") as engine:
        run(
            engine,
            "set storage group to root.a, root.`b c`",
            "set ttl to root.a 77",
            "create timeseries root.a.d.s1(one) with datatype=FLOAT, encoding=GORILLA, "
            "compression=LZ4 tags(unit='a, b') attributes(maker=`x`)",
            "create timeseries root.`b c`.`d,1`.`1` with datatype=TEXT, encoding=PLAIN",
            "create aligned timeseries root.a.al(s1 INT32, s2 INT64)",
            "create timeseries root.a.gone.s with datatype=INT32",
            "delete timeseries root.a.gone.s",
        )
        questions = ["show timeseries", "show ttl", "show devices", "show tag values"]

        def answers(engine):
            plain = [rows(engine, sql) for sql in questions]
            for row in (each for answer in plain for each in answer):
                row.pop("created", None)
            return plain

        expected = answers(engine)
    tlog = node / "out-tlog.txt"
    code, dumped = call(node, "mlog", "dump", "--text", "--tlog", str(tlog))
    assert code == 0, dumped
    other = made(tmp_path_factory.mktemp("other"))
    code, said = take_in(other, dumped, tlog.read_bytes())
    assert code == 0, said
    with Engine.open(other / "schema") as engine:
        assert answers(engine) == expected


def test_the_log_of_the_version_before_opens_as_it_is(node):
    """One segment, without any schema in it: files, owners and tokens."""
    home = node / "old"
    with Engine.open(home) as engine:
        engine.commit([files.seen()])
        engine.commit([files.load()])
    assert [path.name for path in home.glob("mlog-*")] == ["mlog-1.tsf"]
    for path in home.glob("tlog-*"):
        path.unlink()  # that version had none
    with Engine.open(home) as engine:
        with engine.reading() as state:
            assert state.file_table.totals().files == 1
        run(engine, "set storage group to root.t")
        assert column(engine, "show storage group") == ["root.t"]
