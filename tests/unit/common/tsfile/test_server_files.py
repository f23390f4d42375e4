"""Files that database servers wrote, with what the servers wrote beside them and answered."""

from __future__ import annotations

import collections
import csv
import functools
import gzip
import json
from pathlib import Path

import pytest

from common.tsfile import read_tail
from common.tsfile.resource import parse_resource

DATA = Path(__file__).parents[3] / "data/tsfiles"
ENTRIES = json.loads((DATA / "index.iotdb.json").read_text())
AS_WRITTEN = [entry for entry in ENTRIES if "file" in entry and not entry["expected"]["deletions"]]
FILES = sorted(
    {name for entry in ENTRIES for name in entry.get("files", [entry.get("file")]) if name}
)
DELETED_IN_MEMORY = {"deletions", "table_deletions"}


@functools.cache
def spans(name):
    """Of each device, by the tail: when it begins and ends."""
    return {device.name: (device.start, device.end) for device in read_tail(DATA / name).devices}


def is_within(inner, outer):
    return all(
        outer[device][0] <= start <= end <= outer[device][1]
        for device, (start, end) in inner.items()
    )


def test_there_are_files_of_servers_of_several_versions():
    assert {(entry["format"], entry["model"]) for entry in ENTRIES} == {
        (3, "tree"), (4, "tree"), (4, "table"),
    }  # fmt: skip


@pytest.mark.parametrize("entry", AS_WRITTEN, ids=lambda entry: entry["expected"]["file"])
def test_a_device_begins_and_ends_where_the_server_says(entry):
    times = collections.defaultdict(list)
    with gzip.open(DATA / entry["expected"]["file"], "rt", newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            times[row["device"]].append(int(row["time"]))
    answered = {device: (min(known), max(known)) for device, known in times.items()}
    found = spans(entry["file"])
    if entry["model"] == "table":  # has rows of nulls alone, which are not among the expected
        assert found.keys() == answered.keys()
        assert is_within(answered, found)
    else:
        assert found == answered


@pytest.mark.parametrize("name", FILES)
def test_a_resource_names_the_devices_of_its_file_and_covers_their_times(name):
    found = parse_resource((DATA / f"{name}.resource").read_bytes())
    assert found.opaque == ""
    assert found.shared_deletions is None
    covered = {device.name: (device.start, device.end) for device in found.devices}
    if name.rpartition("/")[2].partition(".")[0] in DELETED_IN_MEMORY:
        # what is deleted before the file is written stays in the resource's times
        assert covered.keys() == spans(name).keys()
        assert is_within(spans(name), covered)
    else:
        assert covered == spans(name)
