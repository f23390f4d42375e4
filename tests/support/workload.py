"""A database at the edge, at work: it adds, deletes, compacts and rewrites TsFiles, by a seed.

Files appear as a database makes them: written under a hidden name, renamed, then the `.resource`
that says that they are closed. Both edges of a test may use the same paths; their devices differ.
"""

from __future__ import annotations

import hashlib
import os
import random
from dataclasses import dataclass
from pathlib import Path

from tests.support.tsfile_bytes import build

WEEK = 604_800_000
Points = dict[str, list[tuple[int, int]]]


@dataclass(frozen=True)
class Written:
    """A TsFile as it stands at the edge.

    Attributes:
        size: bytes.
        md5: hex.
        resource_md5: of its `.resource`.
        points: device -> points of its one series.
    """

    size: int
    md5: str
    resource_md5: str
    points: Points


class Workload:
    """One edge.

    Args:
        data: its data directory.
        label: makes its devices differ from those of other edges.
        seed: of everything that is decided.
        most: about so many files at a time.
        pads: sizes of files to choose from, in bytes; None for as small as it gets.

    Attributes:
        files: path -> what is there now, without those that are being changed (`.mods`).
        ever: (path, MD5) of everything that was there at any time.
    """

    def __init__(
        self,
        data: Path,
        label: str,
        seed: int,
        *,
        most: int = 50,
        pads: tuple[int | None, ...] = (None, None, 30_000, 30_000, 400_000, 1_500_000),
    ) -> None:
        self.files: dict[str, Written] = {}
        self.ever: set[tuple[str, str]] = set()
        self.counts = {"added": 0, "deleted": 0, "compacted": 0, "rewritten": 0}
        self._data = data
        self._label = label
        self._rng = random.Random(seed)
        self._most = most
        self._pads = pads
        self._version = 0
        self._clock: dict[int, int] = {}
        self._mods: set[str] = set()

    def step(self) -> None:
        """One change."""
        full = len(self.files) / self._most
        choices = (
            (self._add, 4.0 * (1.2 - full)),
            (self._delete, 1.0 + 2.0 * full),
            (self._compact, 1.0 + full),
            (self._rewrite, 0.4),
            (self._toggle_mods, 0.3),
        )
        work = self._rng.choices(
            [each for each, _ in choices], [max(weight, 0.0) for _, weight in choices]
        )[0]
        work()

    def settle(self) -> None:
        """Nothing is being changed any more."""
        for path in sorted(self._mods):
            (self._data / f"{path}.mods").unlink()
        self._mods.clear()

    # -- the changes -----------------------------------------------------------------------

    def _add(self) -> None:
        rng = self._rng
        sg = rng.choice(["root.shared", "root.shared", f"root.{self._label}_own", "root.Süd Werk"])
        partition = rng.randrange(2900, 2903)
        kind = "sequence" if rng.random() < 0.8 else "unsequence"
        devices = [f"{sg}.{self._label}{number}" for number in range(6)]
        points = {
            device: self._points(partition) for device in rng.sample(devices, rng.randint(1, 3))
        }
        self._version += 1
        name = f"{1_700_000_000_000 + self._version}-{self._version}-0-0.tsfile"
        self._write(f"{kind}/{sg}/0/{partition}/{name}", points)
        self.counts["added"] += 1

    def _delete(self) -> None:
        if path := self._pick():
            self._remove(path)
            self.counts["deleted"] += 1

    def _compact(self) -> None:
        """Some files of a group become one, which is there before they go."""
        first = self._pick()
        if first is None:
            return
        directory = first.rpartition("/")[0]
        group = [path for path in self._free() if path.rpartition("/")[0] == directory]
        chosen = sorted(self._rng.sample(group, min(len(group), self._rng.randint(2, 6))))
        if len(chosen) < 2:
            return
        merged: Points = {}
        for path in chosen:
            for device, points in self.files[path].points.items():
                merged[device] = sorted(merged.get(device, []) + points)
        numbers = [path.rpartition("/")[2].removesuffix(".tsfile").split("-") for path in chosen]
        created, version = min((int(each[0]), int(each[1])) for each in numbers)
        inner = max(int(each[2]) for each in numbers) + 1
        self._write(f"{directory}/{created}-{version}-{inner}-0.tsfile", merged)
        for path in chosen:
            self._remove(path)
        self.counts["compacted"] += 1

    def _rewrite(self) -> None:
        """Other content under the same name: a replacement."""
        if path := self._pick():
            points = {
                device: [(time, value + 1) for time, value in each]
                for device, each in self.files[path].points.items()
            }
            self._write(path, points)
            self.counts["rewritten"] += 1

    def _toggle_mods(self) -> None:
        """A file that is being changed is neither sent nor gone."""
        if self._mods and self._rng.random() < 0.5:
            path = self._rng.choice(sorted(self._mods))
            self._mods.discard(path)
            (self._data / f"{path}.mods").unlink()
        elif path := self._pick():
            self._mods.add(path)
            (self._data / f"{path}.mods").write_bytes(b"mods")

    # -- files -----------------------------------------------------------------------------

    def _free(self) -> list[str]:
        return sorted(set(self.files) - self._mods)

    def _pick(self) -> str | None:
        free = self._free()
        return self._rng.choice(free) if free else None

    def _points(self, partition: int) -> list[tuple[int, int]]:
        begin = self._clock.get(partition, partition * WEEK)
        count = self._rng.randint(1, 50)
        self._clock[partition] = begin + count * 1000
        return [(begin + each * 1000, self._rng.randrange(1 << 40)) for each in range(count)]

    def _write(self, path: str, points: Points) -> None:
        pad = self._rng.choice(self._pads)
        series = {device: {"s": each} for device, each in points.items()}
        content = build(series)
        if pad is not None and pad > 2 * len(content):
            content = build(series, pad_to=pad)
        resource = f"resource of {path} {self._rng.random()}".encode()
        written = Written(
            len(content),
            hashlib.md5(content).hexdigest(),
            hashlib.md5(resource).hexdigest(),
            points,
        )
        self.ever.add((path, written.md5))  # first: a sender may be quicker than the next line
        self._put(path, content)
        self._put(f"{path}.resource", resource)
        self.files[path] = written

    def _put(self, path: str, content: bytes) -> None:
        target = self._data / path
        target.parent.mkdir(parents=True, exist_ok=True)
        hidden = target.with_name(f".{target.name}.writing")
        hidden.write_bytes(content)
        os.replace(hidden, target)

    def _remove(self, path: str) -> None:
        both = [self._data / path, self._data / f"{path}.resource"]
        for each in both if self._rng.random() < 0.5 else both[::-1]:
            each.unlink()
        del self.files[path]
