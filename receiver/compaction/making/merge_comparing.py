"""Whether merged files give what readers get of the files that they stand for: a function of files.

The inputs are merged anew, device by device, and nothing is written: of each series the number of
points, their type and a sum of times and values must be what the merged files have, decoded from
the bytes that were committed. Nothing of the process that merged is used, and nothing that it said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.errors import TsferryError
from common.tsfile import Corrupt
from receiver.compaction.making.device_rows import DeviceRows
from receiver.compaction.making.file_standing import FileStanding
from receiver.compaction.making.input_files import InputFiles
from receiver.compaction.making.merged_sums import (
    SeriesSums,
    add_sums,
    differences,
    sums_in_file,
    sums_of_rows,
)
from receiver.compaction.making.survey import survey
from receiver.compaction.merge_pace import MergePace
from receiver.compaction.worth_merging.merge_asked import (
    ComparisonAsked,
    ComparisonReply,
    MergeAsked,
)
from receiver.points.errors import DamagedData

if TYPE_CHECKING:
    from collections.abc import Iterator

    from common.tsfile import Device

__all__ = ["compare_merge"]


class _ApartError(Exception):
    """The merged files are not what readers get; the message says where."""


def compare_merge(asked: ComparisonAsked) -> ComparisonReply:
    """Merge the inputs of a compaction anew, and compare; raises nothing for whatever they are."""
    question = asked.merge
    kept = MergeAsked(
        asked.outputs, (), question.database, "", "", question.target_bytes, question.memory
    )
    pace = MergePace(question.bytes_per_second)
    try:
        with (
            InputFiles(kept, lambda: False, pace) as outputs,
            InputFiles(question, lambda: False, pace) as inputs,
        ):
            _compare(outputs, inputs, question)
    except _ApartError as error:
        return ComparisonReply(apart=str(error))
    except (TsferryError, OSError, Corrupt) as error:
        return ComparisonReply(unknown=str(error))
    except MemoryError:
        return ComparisonReply(unknown="it takes more memory than merge.memory lets it have")
    return ComparisonReply()


def _compare(outputs: InputFiles, inputs: InputFiles, asked: MergeAsked) -> None:
    places = _devices_of(outputs)
    standing = FileStanding.of_asked(asked.files)
    for device in survey(inputs).devices:
        wanted = sums_of_rows(DeviceRows(inputs, standing, device, asked.memory // 3))
        _see_same(device.name, _given(outputs, places.pop(device.name, [])), wanted)
    for name, there in places.items():
        _see_same(name, _given(outputs, there), {})


def _see_same(device: str, given: SeriesSums, wanted: SeriesSums) -> None:
    for measurement, detail in differences(given, wanted):
        name = f"{device}.{measurement}" if measurement else device
        raise _ApartError(f"{name}: {detail}")


def _devices_of(outputs: InputFiles) -> dict[str, list[tuple[int, Device]]]:
    """Of each device the merged files that have it, by number."""
    found: dict[str, list[tuple[int, Device]]] = {}
    for number in range(len(outputs.files)):
        for device in _sound(outputs, number):
            found.setdefault(device.name, []).append((number, device))
    return found


def _sound(outputs: InputFiles, number: int) -> Iterator[Device]:
    try:
        yield from outputs.open(number).reader.tail.devices
    except (DamagedData, Corrupt, FileNotFoundError) as error:
        raise _ApartError(f"{outputs.files[number].physical}: {error}") from error


def _given(outputs: InputFiles, places: list[tuple[int, Device]]) -> SeriesSums:
    """What the merged files have of a device."""
    total: SeriesSums = {}
    for number, device in places:
        reader = outputs.open(number).reader
        try:
            add_sums(total, sums_in_file(reader, device))
        except (DamagedData, Corrupt) as error:
            raise _ApartError(f"{outputs.files[number].physical}: {error}") from error
    return total
