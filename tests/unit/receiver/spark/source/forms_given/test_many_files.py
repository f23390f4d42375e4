"""Small files that are decoded together give what each would give by itself."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from common.tsfile import read_tail
from receiver.spark.source import slice_reader
from receiver.spark.source.forms_given import forms, many_files
from receiver.spark.source.forms_given.wide_form import WideForm
from receiver.spark.source.inferring import columns_of, list_sources, plan_of, read_tail_of
from receiver.spark.source.read_plans.result_columns import ResultColumn
from receiver.spark.source.read_plans.slicing import plan
from receiver.spark.source.read_plans.source_options import parse_options
from receiver.spark.source.slice_reader import read_slices
from tests.support.tsfile_bytes import build

D1 = "root.sg.d1"
TYPES = {"i": "INT32", "l": "INT64", "f": "FLOAT", "d": "DOUBLE", "b": "BOOLEAN", "t": "TEXT",
         "s": "STRING", "o": "BLOB", "e": "DATE"}  # fmt: skip


def value_of(kind: str, rng: Random) -> Any:
    if kind in ("FLOAT", "DOUBLE"):
        return rng.choice([rng.randint(-9, 9) / 4, -0.0])
    if kind == "BOOLEAN":
        return rng.random() < 0.5
    if kind in ("TEXT", "STRING"):
        return rng.choice(["", "é", "x" * rng.randint(1, 9)])
    if kind == "BLOB":
        return bytes(rng.randrange(256) for _ in range(rng.randint(0, 4)))
    if kind == "DATE":
        return 2024_01_01 + rng.randrange(9)
    return rng.randint(-1000, 1000)


def write(folder: Path, number: int, devices: dict[Any, Any], **given: Any) -> Path:
    path = folder / f"sequence/root.sg/0/0/{number}-{number}-0-0.tsfile"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(build(devices, types=TYPES, **given))
    return path


def read(folder: Path, **given: str) -> Counter[str]:
    options = parse_options({"path": str(folder), **given})
    query = plan_of(options, columns_of(options))
    parts = plan(
        list_sources(options), query.selection.span, 1 << 30, query.picker(), read_tail_of,
        merge=options.merge,
    )  # fmt: skip
    rows = (row for part in parts for each in read_slices(part, query) for row in each.to_pylist())
    return Counter(repr(sorted(row.items())) for row in rows)


def by_themselves(monkeypatch: pytest.MonkeyPatch, folder: Path, **given: str) -> Counter[str]:
    with monkeypatch.context() as patch:
        patch.setattr(slice_reader, "_SMALL_FILE", 0)
        return read(folder, **given)


@pytest.mark.parametrize("seed", range(12))
def test_all_types_forms_and_models_are_as_file_by_file(tmp_path, monkeypatch, seed):
    rng = Random(seed)
    is_table = seed % 3 == 2
    names = [("m", "p1"), ("m", "p2"), ("m", None)] if is_table else [D1, "root.sg.d2"]
    aligned = [] if is_table or rng.random() < 0.5 else rng.sample(names, 1)
    for number in range(6):
        begin = number * 40 if rng.random() < 0.8 else 40
        devices = {
            name: {
                each: [(time, value_of(TYPES[each], rng))
                       for time in sorted(rng.sample(range(begin, begin + 30), rng.randint(1, 9)))]
                for each in rng.sample(list(TYPES), rng.randint(1, 4))
            }
            for name in rng.sample(names, rng.randint(1, len(names)))
        }  # fmt: skip
        path = write(
            tmp_path, number + 1, devices, aligned=[each for each in aligned if each in devices],
            chunks=rng.randint(1, 2), page_points=rng.choice([4, 1000]),
            version=4 if is_table else rng.choice([3, 4]),
        )  # fmt: skip
        if not is_table and rng.random() < 0.3:
            path.with_name(path.name + ".mods").write_text(
                f"DELETION,{D1}.*,{2**63 - 1},{begin},{begin + 9}\n"
            )
    for form in ("long", "wide"):
        for given in (
            {}, {"merge": "false"}, {"startTime": "20", "endTime": "90"},
            {"text": "binary"}, {"columns": "i,t"}, {"fileColumn": "file"},
        ):  # fmt: skip
            asked = {"form": form, **given}
            assert read(tmp_path, **asked) == by_themselves(monkeypatch, tmp_path, **asked), asked


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were read by themselves, once for each device."""
    found: list[str] = []
    kept = slice_reader._Task._alone

    def watched(task: Any, file: Any, device: Any, part: Any) -> Any:
        found.append(Path(part.file.name).name)
        return kept(task, file, device, part)

    monkeypatch.setattr(slice_reader._Task, "_alone", watched)
    return found


def test_files_of_one_device_are_decoded_together(tmp_path, alone):
    for number in range(4):
        write(tmp_path, number + 1, {D1: {"i": [(number * 10 + n, n) for n in range(5)]}})
    assert read(tmp_path).total() == 20
    assert alone == []


def test_files_that_are_not_merged_give_all_they_have(tmp_path, alone):
    for number in range(2):
        write(tmp_path, number + 1, {D1: {"i": [(n, number) for n in range(5)]}})
    assert read(tmp_path, merge="false").total() == 10
    assert len(alone) == 2


def test_a_type_that_changed_keeps_no_file_from_being_read(tmp_path, alone):
    write(tmp_path, 1, {D1: {"i": [(1, 1)]}})
    path = write(tmp_path, 2, {D1: {"i": [(2, 2)]}})
    path.write_bytes(build({D1: {"i": [(2, 2)]}}, types={"i": "INT64"}))
    assert read(tmp_path, form="long").total() == 2
    assert len(alone) == 2


@pytest.mark.parametrize("form", ["long", "wide"])
def test_what_is_damaged_is_named_and_hides_nothing_of_the_others(tmp_path, monkeypatch, form):
    for number in range(4):
        points = [(number * 10 + n, "x" * 40) for n in range(3)]
        path = write(tmp_path, number + 1, {D1: {"t": points}, "root.sg.d2": {"i": [(1, 1)]}})
    content = bytearray(path.read_bytes())
    content[content.index(b"x" * 40) - 2] ^= 0xFF
    path.write_bytes(content)
    found = read(tmp_path, form=form, onError="row")
    assert found == by_themselves(monkeypatch, tmp_path, form=form, onError="row")
    (said,) = [each for each in found if f"('_error', '{path.name}" in each or path.name in each]
    assert "chunk at" in said
    assert read(tmp_path, form=form, onError="skip").total() == found.total() - 1


def test_what_is_no_tsfile_is_one_row_and_the_others_are_read_together(tmp_path, alone):
    for number in range(3):
        path = write(tmp_path, number + 1, {D1: {"i": [(number, 1)]}})
    path.write_bytes(b"nothing")
    assert read(tmp_path, onError="skip").total() == 2
    assert alone == []


def test_rows_of_a_result_of_many_columns_are_made_as_they_are_sent(tmp_path, monkeypatch):
    """NULLs of columns that other devices have take many times what was decoded."""
    write(tmp_path, 1, {"root.sg.other": {f"m{each}": [(1, 1)] for each in range(9)}})
    for number in range(2, 5):
        write(tmp_path, number, {D1: {"i": [(number * 10 + n, n) for n in range(8)]}})
    monkeypatch.setattr(forms, "_MOST_ROWS", 4)
    made = []
    kept = WideForm._row_batch
    monkeypatch.setattr(WideForm, "_row_batch", lambda *given: made.append(given) or kept(*given))
    options = parse_options({"path": str(tmp_path), "devices": D1})
    query = plan_of(options, columns_of(options))
    (part,) = plan(
        list_sources(options), query.selection.span, 1 << 30, query.picker(), read_tail_of
    )
    batches = read_slices(part, query)
    assert next(batches).num_rows == 4
    assert len(made) == 1
    assert sum(each.num_rows for each in batches) == 20
    assert len(made) == 6


@pytest.mark.parametrize("form", ["long", "wide"])
def test_what_is_more_than_is_to_be_held_is_read_of_each_file(tmp_path, monkeypatch, alone, form):
    for number in range(4):
        points = {each: [(number * 10 + n, n) for n in range(5)] for each in "il"}
        write(tmp_path, number + 1, {D1: points})
    expected = read(tmp_path, form=form)
    assert alone == []
    monkeypatch.setattr(many_files, "_MEMORY", 5 * 4 * (8 + 4) + 1)  # one series, not both
    assert read(tmp_path, form=form) == expected
    assert len(alone) == 4


def test_series_without_a_time_in_common_are_joined_in_small_steps(tmp_path, monkeypatch):
    """A row of all of them for each time of each is the square of what they have."""
    for number in range(4):
        points = {
            each: [(number * 100 + 10 * n + at, 1) for n in range(8)]
            for at, each in enumerate("ilfd")
        }
        write(tmp_path, number + 1, {D1: points})
    expected = read(tmp_path)
    rows = []
    kept = many_files.cut

    def watched(pieces: Any, *given: Any, **more: Any) -> Any:
        return kept((rows.append(len(each)) or each for each in pieces), *given, **more)

    monkeypatch.setattr(many_files, "cut", watched)
    monkeypatch.setattr(many_files, "_CELLS", 2 * 4 * 4)
    assert read(tmp_path) == expected
    assert sum(rows) == 4 * 8 * 4
    assert max(rows) <= 2 * 4


def test_only_so_many_bytes_of_files_that_overlap_are_held(tmp_path, monkeypatch):
    paths = [write(tmp_path, number, {D1: {"i": [(n, number) for n in range(9)]}})
             for number in range(1, 5)]  # fmt: skip
    held = []
    kept = many_files.SmallFiles.together

    def watched(self: Any, *given: Any) -> Any:
        found = kept(self, *given)
        held.append((len(self._readers), found is not None))
        return found

    monkeypatch.setattr(many_files.SmallFiles, "together", watched)
    expected = read(tmp_path)
    size = read_tail(paths[0].read_bytes()).meta_offset
    monkeypatch.setattr(many_files, "_MOST_HELD", 2 * size)
    assert read(tmp_path) == expected
    (all_of_them, some) = held
    assert all_of_them == (4, True)
    assert some[0] == 2
    assert not some[1]


def test_texts_are_decoded_in_parts_by_what_they_take_in_the_files(tmp_path, monkeypatch):
    paths = [write(tmp_path, number, {D1: {"t": [(number * 10 + n, "x" * 500) for n in range(9)]}})
             for number in range(3)]  # fmt: skip
    seen = []
    kept = many_files.DeviceRows

    def watched(files: Any, standing: Any, device: Any, memory: int) -> Any:
        seen.append(device)
        return kept(files, standing, device, memory)

    monkeypatch.setattr(many_files, "DeviceRows", watched)
    read(tmp_path)
    (device,) = seen
    assert device.size == pytest.approx(
        sum(read_tail(each.read_bytes()).meta_offset for each in paths)
    )


def test_a_tag_stands_under_the_name_that_it_has_in_each_file(tmp_path, alone):
    """A table was dropped and made anew, with another tag."""
    paths = [
        write(tmp_path, number, {("m", "p1"): {"i": [(number, 1)]}, ("m", "p2"): {"i": [(9, 1)]}})
        for number in range(2)
    ]
    paths[1].write_bytes(paths[1].read_bytes().replace(b"tag1", b"site"))
    options = parse_options({"path": str(tmp_path), "table": "m", "merge": "false"})
    types = {"time": "bigint", "device": "string", "tag1": "string", "site": "string", "i": "int"}
    query = plan_of(options, [ResultColumn(*each) for each in types.items()])
    (part,) = plan(
        list_sources(options), query.selection.span, 1 << 30, query.picker(), read_tail_of
    )
    rows = [row for each in read_slices(part, query) for row in each.to_pylist()]
    tags = sorted((row["time"], row["tag1"], row["site"]) for row in rows if row["time"] < 9)
    assert tags == [(0, "p1", None), (1, None, "p1")]
    assert len(alone) == 4
