"""Files that database servers wrote, and what the servers themselves answered of them."""

from __future__ import annotations

import collections
import csv
import functools
import gzip
import json
from pathlib import Path

import pytest

from common.tsfile import Status, read_tail
from common.tsfile.resource import parse_resource

DATA = Path(__file__).parents[3] / "data/tsfiles"
ENTRIES = json.loads((DATA / "index.iotdb.json").read_text())
AS_WRITTEN = [entry for entry in ENTRIES if "file" in entry and not entry["expected"]["deletions"]]
FILES = sorted(
    {name for entry in ENTRIES for name in entry.get("files", [entry.get("file")]) if name}
)
DELETED_IN_MEMORY = {"deletions", "table_deletions"}


@functools.cache
def tail(name):
    return read_tail(DATA / name, chunk_headers=True)


def rows(name):
    with gzip.open(DATA / name, "rt", newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def case(name):
    return name.rpartition("/")[2].partition(".")[0]


def test_there_are_files_of_servers_of_several_versions():
    assert {entry["format"] for entry in ENTRIES} == {3, 4}
    assert {entry["model"] for entry in ENTRIES} == {"tree", "table"}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_a_server_is_sound_down_to_its_chunk_headers(name):
    read = tail(name)
    assert read.status is Status.COMPLETE, read.reason
    assert read.device_count > 0


@pytest.mark.parametrize("entry", AS_WRITTEN, ids=lambda entry: entry["expected"]["file"])
def test_its_series_are_those_that_the_server_answered(entry):
    points = collections.Counter()
    for row in rows(entry["expected"]["file"]):
        points[row["device"], row["measurement"], row["type"]] += 1
    found = {
        (device.name, series.measurement, series.data_type.name): series.count
        for device, series in tail(entry["file"]).series()
    }
    assert {key: count for key, count in found.items() if count} == points


@pytest.mark.parametrize("entry", AS_WRITTEN, ids=lambda entry: entry["expected"]["file"])
def test_a_device_begins_and_ends_where_the_server_says(entry):
    times = collections.defaultdict(list)
    for row in rows(entry["expected"]["file"]):
        times[row["device"]].append(int(row["time"]))
    found = {device.name: (device.start, device.end) for device in tail(entry["file"]).devices}
    answered = {device: (min(known), max(known)) for device, known in times.items()}
    if entry["model"] == "table":  # has rows of nulls alone, which are not among the expected
        assert found.keys() == answered.keys()
        for device, (start, end) in answered.items():
            assert found[device][0] <= start <= end <= found[device][1]
    else:
        assert found == answered


@pytest.mark.parametrize("name", FILES)
def test_a_resource_names_the_devices_of_its_file_and_covers_their_times(name):
    found = parse_resource((DATA / f"{name}.resource").read_bytes())
    assert found.opaque == ""
    covered = {device.name: (device.start, device.end) for device in found.devices}
    held = {device.name: (device.start, device.end) for device in tail(name).devices}
    if case(name) in DELETED_IN_MEMORY:
        # what is deleted before the file is written stays in the resource's times
        assert covered.keys() == held.keys()
        for device, (start, end) in held.items():
            assert covered[device][0] <= start <= end <= covered[device][1]
    else:
        assert covered == held
