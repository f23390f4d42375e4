"""Make real files anew: start database servers, write, delete, stop, copy, and ask them first.

    python scripts/realfiles/iotdb.py [--release 2.0.1-beta ...] [--profile main ...]
        [--work /tmp/realfiles-iotdb] [--out tests/data/tsfiles]

What is expected of a reader is what the server itself answered. See README.md beside this file.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from iotdb_cases import PROFILES, Case, Database, Profile  # noqa: E402
from iotdb_client import Refused  # noqa: E402
from iotdb_rows import Snapshot, write_rows  # noqa: E402
from iotdb_server import RELEASES, Release, Server, Toolchain  # noqa: E402

from common.tsfile import read_tail  # noqa: E402

COMPANIONS: Final = (".resource", ".mods", ".mods2")

Entry = dict[str, Any]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--release", nargs="+", choices=RELEASES, default=list(RELEASES))
    profiles = {profile.name: profile for profile in PROFILES}
    parser.add_argument("--profile", nargs="+", choices=profiles)
    parser.add_argument("--case", nargs="+", help="only these of the profiles' cases")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir(), "realfiles-iotdb"))
    parser.add_argument("--out", type=Path, default=ROOT / "tests/data/tsfiles")
    arguments = parser.parse_args()
    work = arguments.work.resolve()
    for name in arguments.release:
        tools = Toolchain(RELEASES[name], work / name / "tools")
        tools.prepare()
        for profile in map(profiles.__getitem__, arguments.profile or tools.release.profiles):
            if arguments.case:
                chosen = tuple(case for case in profile.cases if case.name in arguments.case)
                profile = dataclasses.replace(profile, cases=chosen)
            entries = _run(tools, profile, work / name / profile.name, arguments.out)
            _merge(arguments.out / "index.iotdb.json", entries)


def _run(tools: Toolchain, profile: Profile, home: Path, out: Path) -> list[Entry]:
    cases = profile.of(tools.release)
    if not cases:
        return []
    shutil.rmtree(home, ignore_errors=True)
    server = Server(tools, home, profile.settings)
    filled: list[tuple[Case, Database]] = []
    print(f"{tools.release.version}, {profile.name}")
    with server.running():
        for case in cases:
            print(f"  {case.name}", flush=True)
            with server.client("table" if case.tables else "tree") as client:
                database = Database(
                    server,
                    client,
                    case.database,
                    tables=case.tables,
                    time_unit=profile.time_unit,
                )
                client.execute(f"{tools.release.create} {case.database}")
                if case.tables:
                    client.execute(f"use {case.database}")
                try:
                    case.fill(database)
                except (Refused, TimeoutError) as failure:
                    print(f"    left out: {failure!r}")
                    continue
            filled.append((case, database))
    entries = []
    for case, database in filled:
        folder = out / f"iotdb-{tools.release.version}"
        entries += _keep(tools.release, profile, case, database, folder)
    return entries


def _keep(
    release: Release, profile: Profile, case: Case, database: Database, folder: Path
) -> list[Entry]:
    """Copy a case's files and write what is expected of them."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(f"{case.name}.*"):
        old.unlink()
    names = _new_names(case, list(database.files()))
    mods: dict[str, list[str]] = {}
    for source, name in names.items():
        mods[name] = []
        shutil.copyfile(database.directory / source, folder / name)
        for suffix in COMPANIONS:
            companion = database.directory / f"{source}{suffix}"
            if companion.exists():
                shutil.copyfile(companion, folder / f"{name}{suffix}")
                if suffix != ".resource":
                    mods[name].append(f"{name}{suffix}")
    base = {
        "writer": f"iotdb-{release.version}",
        "format": release.format,
        "model": "table" if case.tables else "tree",
        "time_unit": profile.time_unit,
        "covers": [case.name, " ".join((case.fill.__doc__ or "").split())],
    }
    entries: list[Entry] = []
    for snapshot in database.snapshots:
        label = "with_deletions" if snapshot.deletions else "written"
        for entry in _expected(snapshot, names, folder, f"{case.name}.{label}"):
            applied = [mod for name in entry["files"] for mod in mods[Path(name).name]]
            one = entry["files"][0] if len(entry["files"]) == 1 else None
            located = {"file": one} if one else {"files": entry["files"]}
            within = folder.name
            entries.append(
                {
                    **located,
                    **base,
                    "origin": entry["origin"],
                    "expected": {
                        "file": entry["expected"],
                        "form": "long",
                        "deletions": snapshot.deletions,
                    },
                    "mods": [f"{within}/{mod}" for mod in applied] or None,
                }
            )
    return entries


def _expected(
    snapshot: Snapshot, names: dict[str, str], folder: Path, label: str
) -> Iterator[Entry]:
    """One entry for all files of a snapshot, and one for each that alone has its devices."""
    files = [names[source] for source in names if source in snapshot.files]
    devices = {name: _devices(folder / name) for name in files}
    write_rows(folder / f"{label}.csv.gz", list(snapshot.rows))
    within = folder.name
    yield {
        "files": [f"{within}/{name}" for name in files],
        "origin": [source for source in names if source in snapshot.files],
        "expected": f"{within}/{label}.csv.gz",
    }
    if len(files) == 1:
        return
    for name in files:
        others = set().union(*(devices[other] for other in files if other != name))
        if devices[name] & others:
            continue
        rows = [row for row in snapshot.rows if row[0] in devices[name]]
        stem = f"{label}.{name.removesuffix('.tsfile').partition('.')[2]}"
        write_rows(folder / f"{stem}.csv.gz", rows)
        yield {
            "files": [f"{within}/{name}"],
            "origin": [source for source in names if names[source] == name],
            "expected": f"{within}/{stem}.csv.gz",
        }


def _devices(path: Path) -> set[str]:
    return {device.name for device in read_tail(path).devices}


def _new_names(case: Case, sources: list[str]) -> dict[str, str]:
    """``<case>.tsfile``, or ``<case>.sequence-1.tsfile`` and so on where there are several."""
    if len(sources) == 1:
        return {sources[0]: f"{case.name}.tsfile"}
    names, count = {}, {"sequence": 0, "unsequence": 0}
    for source in sources:
        kind = source.partition("/")[0]
        count[kind] += 1
        names[source] = f"{case.name}.{kind}-{count[kind]}.tsfile"
    return names


def _merge(path: Path, entries: list[Entry]) -> None:
    """Put the entries in the place of those of the same writer and case."""
    replaced = {(entry["writer"], entry["covers"][0]) for entry in entries}
    old = json.loads(path.read_text()) if path.exists() else []
    kept = [entry for entry in old if (entry["writer"], entry["covers"][0]) not in replaced]
    merged = sorted(
        kept + entries,
        key=lambda entry: (entry["writer"], entry["covers"][0], entry["expected"]["file"]),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(merged, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
