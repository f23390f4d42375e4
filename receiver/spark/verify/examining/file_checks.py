"""What is proved of one file, and how: a list of steps, each of which finds something or nothing.

The steps run inside Spark workers, one file after the other, and never raise for what a file
contains: a bad file becomes findings. Decoding every page is one of them (`decoding`).

Nothing here trusts a file: its tail is read by our own reader, its pages by our own kernels, which
read only within the bytes of a page, write only within arrays of known size, and end after a
number of steps that those sizes bound. So no child process is needed to be safe from content. What
is left (a file system that hangs, an out-of-memory kill, a fault of ours) is met by the time limit
and, when a worker died, by doing its files again one by one in a process of their own
(`isolation`).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from common import crash
from common.beneath import require_regular
from common.digests import md5
from common.durable import Tree
from common.errors import TsferryError, UnsafePathError
from common.tsfile import Corrupt, Status, Tail, read_tail
from common.tsfile.byte_source import source_of
from common.tsfile.proving import series_proofs
from receiver.metadata.model.paths import IllegalPathError
from receiver.points.errors import DamagedData, UnsupportedData
from receiver.spark.finder import shown
from receiver.spark.late_uploads import place_now
from receiver.spark.report.results import Severity
from receiver.spark.source.read_plans.selection import TimeRange
from receiver.spark.source.wanted_ranges import wanted_ranges
from receiver.spark.verify.examining.findings import Findings
from receiver.spark.verify.examining.limits import TimeIsUp, time_limit
from receiver.spark.verify.examining.packed_outlines import pack_outline
from receiver.spark.verify.examining.part_decoding import DecodedPart, decode, share
from receiver.spark.verify.examining.parts import Expected, FilePart, PartResult, PartSpan
from receiver.storage.reading.open_stores import of_process
from receiver.storage.reading.ranged_file import RangedFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from common.tsfile import Device, Series
    from common.tsfile.byte_source import ByteSource

__all__ = ["OUTPUT_STEPS", "STEPS", "CheckedPart", "check_part", "opened"]

_BLOCK = 1 << 20


@dataclass(slots=True)
class CheckedPart:
    """All that a part yields.

    Attributes:
        result: counts and findings.
        spans: of its devices.
        chunks: a table of `ChunkResult`, if asked for.
    """

    result: PartResult
    spans: list[PartSpan] = field(default_factory=list)
    chunks: pa.Table | None = None


@dataclass(slots=True)
class _Open:
    """A file under inspection; the tail is read once and shared by the steps."""

    source: ByteSource
    part: FilePart
    unit: str
    keep_chunks: bool
    found: Findings
    checked: CheckedPart
    tail: Tail | None = None

    @property
    def is_remote(self) -> bool:
        """Whether it is read from the object store."""
        return isinstance(self.source, RangedFile)

    def goes_over(self, devices: Sequence[Device] | None = None) -> None:
        """What comes next reads all of it, or all of some devices, from begin to end."""
        if isinstance(self.source, RangedFile):
            whole = ((0, self.source.size),)
            every = TimeRange()
            self.source.expect(
                whole
                if devices is None
                else wanted_ranges(self.whole_tail(), devices, every, lambda _: True)
            )

    @property
    def expected(self) -> Expected:
        return self.part.expected

    @property
    def result(self) -> PartResult:
        return self.checked.result

    def whole_tail(self) -> Tail:
        """The tail, where a step before has read it."""
        assert self.tail is not None
        return self.tail


CheckStep = Callable[[_Open], bool]
"""A check; False when the steps after it have nothing left to stand on."""


# -- steps of the whole file ---------------------------------------------------------------------


def _size(file: _Open) -> bool:
    size, expected = file.source.size, file.expected.size
    file.result.size = size
    if expected is not None and size != expected:
        file.found.bad("size", f"{size} bytes, {expected} were loaded")
    if not size and expected is None:
        file.found.bad("size", "the file is empty")
    return size > 0


def _digest(file: _Open) -> bool:
    expected = file.expected
    if expected.size is not None and file.result.size != expected.size:
        return True  # it cannot be the same
    file.goes_over()
    file.result.md5 = _md5_of(file.source)
    if expected.md5 is not None and file.result.md5 != expected.md5:
        detail = f"{file.result.md5}, {expected.md5} was loaded"
        if file.is_remote:  # of the store that says something, and nothing of the file
            file.found.unproved("read", detail)
            return False
        file.found.bad("md5", detail)
    return True


def _md5_of(source: ByteSource) -> str:
    digest = md5()
    for offset in range(0, source.size, _BLOCK):
        digest.update(source.read(offset, min(_BLOCK, source.size - offset)))
    return digest.hexdigest()


def _structure(file: _Open) -> bool:
    tail = read_tail(file.source, structure=True, chunk_headers=file.part.part == 0)
    if tail.status is not Status.COMPLETE:
        _incomplete(file, tail)  # whatever part 0 read, what is left out here is not proved
        return False
    file.tail = tail
    if file.part.part == 0:
        result = file.result
        result.version, result.devices = tail.version or 0, tail.device_count
        result.series = tail.series_count
        result.first_time, result.last_time = tail.first_time, tail.last_time
    return True


def _incomplete(file: _Open, tail: Tail) -> None:
    detail = f"{tail.status}: {tail.reason}"
    if tail.status is Status.LEGACY:
        file.found.unproved("unsupported", detail)
    elif tail.status is Status.UNSEALED and file.expected.md5 is None:
        file.found.unproved("structure", detail)  # of no receiver: it may be open
    else:
        file.found.bad("structure", detail)


def _counts(file: _Open) -> bool:
    tail, expected = file.whole_tail(), file.expected
    for what, found, loaded, sent in (
        ("series", tail.series_count, expected.series, expected.manifest_series),
        ("points", tail.point_count, expected.points, expected.manifest_points),
    ):
        if loaded is not None and found != loaded:
            file.found.bad("counts", f"{found} {what}, {loaded} were loaded")
        if sent is not None and found != sent:
            file.found.bad("manifest", f"{found} {what}, the sender's manifest has {sent}")
    return True


def _devices(file: _Open) -> bool:
    names = [_name(device, file.expected) for device in file.whole_tail().devices]
    if file.expected.devices is None:
        return True
    for name in sorted(set(names).symmetric_difference(file.expected.devices)):
        where = "in the catalogue only" if name in file.expected.devices else "in the file only"
        file.found.add(Severity.BAD, "devices", f"it is {where}", device=name)
    return True


def _manifest(file: _Open) -> bool:
    """Compare with the sender's table of series; the driver names the series that differ."""
    sent = file.expected.manifest_root
    if sent is not None:
        file.goes_over()
        table = series_proofs(file.source, file.whole_tail())
        if table.root != sent:
            file.result.table = table.pack()
    return True


def _outline(file: _Open) -> bool:
    """Types and codecs, for the comparison with the schema."""
    if file.expected.md5 is not None:
        try:
            tail, database = file.whole_tail(), file.expected.database
            file.result.outline = pack_outline(file.source, tail, database)
        except IllegalPathError as error:
            file.found.add(Severity.PROBLEM, "schema", f"a device has no path: {error}")
    return True


def _order(file: _Open) -> bool:
    """In a sequence file the chunks of a series follow each other in time.

    By the index, whose ranges decoding compares with the points.
    """
    if file.expected.kind != "sequence":
        return True
    for device in file.whole_tail().devices:
        column = device.time_column()
        for series in [column] if column is not None else device.series():
            if len(series.chunks) > 1:
                _one_series(file, _name(device, file.expected), series)
    return True


def _one_series(file: _Open, device: str, series: Series) -> None:
    last: int | None = None
    for chunk in series.chunks:
        if not chunk.statistics.count:
            continue
        if last is not None and chunk.statistics.start <= last:
            file.found.add(
                Severity.BAD,
                "order",
                f"a chunk begins at {chunk.statistics.start}, the one before it reaches {last}",
                device=device,
                measurement=series.measurement,
                offset=chunk.offset,
            )
        last = chunk.statistics.end


def _spans(file: _Open) -> bool:
    """Devices with their ranges, by the index; what only decoding tells is added there."""
    file.checked.spans = [
        PartSpan(_name(each, file.expected), each.start, each.end, each.rows, None, None, None)
        for each in file.whole_tail().devices
        if each.start is not None
    ]
    return True


# -- decoding ------------------------------------------------------------------------------------


def _encrypted(file: _Open) -> bool:
    level = file.whole_tail().encrypt_level
    if level != "0":
        if file.part.part == 0:
            file.found.unproved("encrypted", f"its pages are encrypted (level {level})")
        return False
    return True


def _pages(file: _Open) -> bool:
    """Decode every page of the devices that fall to this part."""
    tail, part = file.whole_tail(), file.part
    if part.part == 0 and part.parts:
        return True
    devices = share(tail, part.part, part.parts)
    decoded = DecodedPart(shown(part.expected.physical), file.unit, keep_chunks=file.keep_chunks)
    names = {device.name: _name(device, file.expected) for device in devices}
    file.goes_over(devices)
    crash.point("verify.decoding")
    try:
        decode(file.source, tail, devices, names, file.found, decoded)
    finally:  # what was decoded before the time was up counts as decoded
        _take(file, decoded)
    return True


def _take(file: _Open, decoded: DecodedPart) -> None:
    result = file.result
    result.points, result.chunks, result.pages = decoded.points, decoded.chunks, decoded.pages
    result.days, result.codecs = decoded.days, decoded.codec_totals()
    if file.part.part == 0:
        gaps = decoded.gaps
        file.checked.spans = [
            _with_gaps(each, gaps[each.device]) if each.device in gaps else each
            for each in file.checked.spans
        ]
    else:
        file.checked.spans = list(decoded.gaps.values())
    file.checked.chunks = decoded.chunk_table()


def _with_gaps(span: PartSpan, gap: PartSpan) -> PartSpan:
    """A span by the index, with the gaps that decoding found."""
    return PartSpan(
        span.device, span.first, span.last, span.rows, gap.interval, gap.gap, gap.gap_begins
    )


STEPS: tuple[CheckStep, ...] = (
    _size,
    _digest,
    _structure,
    _counts,
    _devices,
    _spans,
    _outline,
    _order,
    _manifest,
    _encrypted,
    _pages,
)
_SHARE: tuple[CheckStep, ...] = (_size, _structure, _encrypted, _pages)
OUTPUT_STEPS: tuple[CheckStep, ...] = (
    _size,
    _digest,
    _structure,
    _counts,
    _devices,
    _order,
    _encrypted,
)
"""Of a merged file as a whole; its pages are decoded where it is compared with its inputs."""


# -- a part --------------------------------------------------------------------------------------


def check_part(
    part: FilePart,
    *,
    unit: str = "ms",
    keep_chunks: bool = False,
    limit: float | None = None,
    steps: Sequence[CheckStep] | None = None,
) -> CheckedPart:
    """Work off a part; raises nothing for whatever the file is.

    Args:
        part: what to do.
        unit: of the times: `ms`, `us` or `ns`.
        keep_chunks: make the table of chunks, too.
        limit: seconds after which the part is given up.
        steps: others than the usual ones.
    """
    found = Findings()
    checked = CheckedPart(PartResult(part.file, part.part))
    try:
        with opened(part.expected) as here:
            source = here if isinstance(here, RangedFile) else source_of(here)
            file = _Open(source, part, unit, keep_chunks, found, checked)
            before = None if isinstance(here, RangedFile) else os.fstat(here)
            _run(file, (_SHARE if part.part else STEPS) if steps is None else steps, limit)
            if before is not None and not isinstance(here, RangedFile):
                _unchanged(file, here, before)
    except FileNotFoundError:
        checked.result.absent, checked.result.host = True, socket.gethostname()
    except UnsafePathError as error:  # an operator's symlink, perhaps: it says nothing of the file
        found.unproved("present", str(error))
    except OSError as error:
        found.unproved("read", f"it cannot be opened: {error}")
    except TsferryError as error:
        found.unproved("read", str(error))
    checked.result.findings, checked.result.dropped = found.kept, found.dropped
    return checked


def _run(file: _Open, steps: Sequence[CheckStep], limit: float | None) -> None:
    try:
        with time_limit(limit):
            for step in steps:
                if not step(file):
                    break
    except TimeIsUp:
        file.found.unproved("limit", f"given up after {limit:g} seconds")
    except MemoryError:
        file.found.unproved("limit", "there was not memory enough")
    except Corrupt as error:
        file.found.bad("structure", str(error))
    except DamagedData as error:
        file.found.bad("structure", error.reason)
    except UnsupportedData as error:
        file.found.unproved("unsupported", error.reason)
    except OSError as error:
        file.found.unproved("read", f"it cannot be read: {error}")
    except TsferryError as error:  # of the store, whose bytes were not what it was given
        file.found.unproved("read", str(error))


def _unchanged(file: _Open, fd: int, before: os.stat_result) -> None:
    """What was found of a file that changed meanwhile is true of neither state of it."""
    after = os.fstat(fd)
    if not after.st_nlink:
        file.found.soften()
        file.found.unproved("changed", "it was deleted while it was read")
    elif (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
        file.found.soften()
        file.found.unproved("changed", "it changed while it was read")


@contextmanager
def opened(expected: Expected) -> Iterator[int | RangedFile]:
    """A descriptor of the file, from the first place that has it; else what reads it in the store.

    Raises:
        FileNotFoundError: none has, and neither has a store that is known.
        UnsafePathError: it is no regular file.
        TsferryError: there is no way to the store.
    """
    try:
        fd = _open_below(expected) if _is_of_catalogue(expected) else _open_plain(expected.physical)
    except FileNotFoundError:
        if expected.place is None:
            raise
        with of_process.file(place_now(expected.place)) as source:
            yield source
        return
    try:
        yield fd
    finally:
        os.close(fd)


def _is_of_catalogue(expected: Expected) -> bool:
    """Whether its path is one beneath data directories, of which there may be none here."""
    return bool(expected.roots) or expected.place is not None or expected.md5 is not None


def _open_below(expected: Expected) -> int:
    for root in expected.roots:
        try:
            with Tree(Path(root)) as tree:
                return tree.open_read(expected.physical)
        except (FileNotFoundError, NotADirectoryError):
            continue
    raise FileNotFoundError(expected.physical)


def _open_plain(path: str) -> int:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        require_regular(fd, path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _name(device: Device, expected: Expected) -> str:
    """The device by its name in the catalogue; of a plain file, as the file names it."""
    return device.name_in(expected.database) if expected.database else device.name
