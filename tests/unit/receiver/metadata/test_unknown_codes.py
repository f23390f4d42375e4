"""A file may hold codes of a later version: what shows them, or passes them on, goes on."""

import pytest

from receiver.load.schema.registering import Registering
from receiver.metadata.commit.draft import Draft
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.sql.executing import execute
from receiver.metadata.text import mlog_text
from receiver.transfer.schemachanges import SchemaReader
from tests.support.metadata import load, path, seen

TYPE, ENCODING, COMPRESSION = 23, 99, 255


@pytest.fixture
def engine(tmp_path):
    with Engine.open(tmp_path, background=False) as engine:
        file = load(path("1-1-0", sg="root.sg"), 1, devices={"root.sg.d": (0, 1)})
        device = records.LoadedDevice(
            "root.sg.d",
            False,
            ("new", "old"),
            bytes([TYPE, 3]),
            bytes([ENCODING, 8]),
            bytes([COMPRESSION, 1]),
            (1, 1),
        )
        group = records.StorageGroupSet("root.sg")
        engine.commit([group, seen(), file, records.SeriesLoaded(file.physical, [device])])
        yield engine


@pytest.mark.parametrize("restarts", [False, True])
def test_they_are_shown_by_their_number(engine, restarts):
    if restarts:
        engine.checkpoint()
    for question in ("show timeseries", "show timeseries root.**.new", "show timeseries root.sg"):
        rows = [row[3:6] for row in execute(engine, question)]
        assert rows[0] == ("UNKNOWN(23)", "UNKNOWN(99)", "UNKNOWN(255)")
        assert rows[1:] in ([("FLOAT", "GORILLA", "SNAPPY")], [])


def test_they_are_told_to_who_forwards_and_stand_in_a_dump_as_they_are(engine):
    items = SchemaReader(engine).page(0, None, 100).items
    item = next(each for each in items if each.path == "root.sg.d.new")
    assert (item.type, item.encoding, item.compression) == (TYPE, ENCODING, COMPRESSION)
    nodes = tuple(item.path.split("."))
    record = mlog_text.CreateSeries(nodes, item.type, item.encoding, item.compression)
    assert mlog_text.parse_line(mlog_text.print_line(record)) == record


def test_a_conflict_names_them(engine):
    device = records.LoadedDevice("root.sg.d", False, ("new",), b"\3", b"\0", b"\0", (1,))
    with engine.reading() as state:
        (file,) = state.files
        refusal = Registering(Draft(state), level=0).take(file, "root.sg", [device])
    assert "is UNKNOWN(23) in the schema, FLOAT in the file" in refusal.reason
