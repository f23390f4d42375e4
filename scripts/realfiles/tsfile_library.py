"""Writes the files of tests/data/tsfiles that the Java TsFile library makes, and what it reads.

    python scripts/realfiles/tsfile_library.py                  # all versions, into tests/data
    python scripts/realfiles/tsfile_library.py --into /tmp/x --all --only 2.4.0

Needs a JDK, Maven and what it finds on Maven Central. See the README beside this file.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import gzip
import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from common.tsfile.device_names import device_name  # noqa: E402

JAVA = Path(__file__).resolve().parent / "java"
PAIRS = Path(__file__).resolve().parent / "pairs.tsv"
DATA = ROOT / "tests" / "data" / "tsfiles"
IOTDB_NAMES = (
    ("org.apache.tsfile.enums.TSDataType", "org.apache.tsfile.file.metadata.enums.TSDataType"),
    ("org.apache.tsfile", "org.apache.iotdb.tsfile"),
)

COVERS = {
    "pairs": ["every type with every encoding", "several pages a chunk", "chunks of one page"],
    "short_pairs": [
        "every type with every encoding",
        "several pages a chunk",
        "chunks of one page",
    ],
    "changed_pairs": ["encodings that a later version writes otherwise", "several pages a chunk"],
    "later_types": ["DATE, TIMESTAMP, STRING, BLOB with every encoding"],
    "aligned_pairs": ["every type with every encoding", "aligned", "nulls", "pages without points"],
    "precision": ["FLOAT and DOUBLE of 0, 1 and 6 decimals"],
    "compressions": ["every compression", "plain and aligned", "pages that do not shrink"],
    "long_texts": ["values of more than 64 KiB"],
    "times": ["times at the ends of int64", "negative times", "nanoseconds"],
    "plain_times": ["plain chunks with PLAIN times, which the file does not say"],
    "rle_times": ["plain chunks with RLE times, which the file does not say"],
    "aligned_times": ["every time encoding", "aligned", "times at the ends of int64"],
    "names": ["inner nodes of the index", "names in back-ticks"],
    "nulls": ["aligned", "empty series", "pages and chunks of nulls"],
    "no_devices": ["a file without devices"],
    "tablets": ["written by the public writer", "plain and aligned", "several pages and chunks"],
    "tables": ["tables", "null tags", "every type", "empty series", "several pages and chunks"],
    "encrypted": ["encrypted pages"],
}
PARTS_OF_PAIRS = ("short_pairs", "changed_pairs", "later_types")


@dataclasses.dataclass(frozen=True)
class Library:
    """A version of the library, and what of its outcome is worth its place in the repository."""

    group: str
    version: str
    format: int
    sources: tuple[str, ...]
    keep: tuple[str, ...]
    names: tuple[tuple[str, str], ...] = ()

    @property
    def folder(self) -> str:
        return f"{'iotdb-tsfile' if 'iotdb' in self.group else 'tsfile'}-{self.version}"

    @property
    def writer(self) -> str:
        return f"{self.group}:tsfile:{self.version}"


LIBRARIES = (
    Library(
        "org.apache.iotdb",
        "0.12.6",
        3,
        ("shared", "api_0", "not_aligned", "no_tables"),
        ("short_pairs",),
        (*IOTDB_NAMES, ("TsFileReader", "ReadOnlyTsFile")),
    ),
    Library(
        "org.apache.iotdb",
        "0.13.4",
        3,
        ("shared", "api_0", "aligned", "no_tables"),
        ("nulls", "no_devices"),
        IOTDB_NAMES,
    ),
    Library(
        "org.apache.iotdb",
        "1.3.2",
        3,
        ("shared", "api_1", "aligned", "no_tables"),
        ("changed_pairs", "aligned_pairs", "names"),
        IOTDB_NAMES,
    ),
    Library(
        "org.apache.tsfile",
        "1.1.3",
        3,
        ("shared", "api_1", "aligned", "no_tables"),
        ("later_types",),
    ),
    Library(
        "org.apache.tsfile",
        "2.4.0",
        4,
        ("shared", "api_2", "aligned", "v4"),
        (
            "pairs",
            "aligned_pairs",
            "precision",
            "compressions",
            "long_texts",
            "times",
            "plain_times",
            "rle_times",
            "aligned_times",
            "names",
            "nulls",
            "no_devices",
            "tablets",
            "tables",
            "encrypted",
        ),
    ),
)


Pairs: TypeAlias = dict[tuple[str, ...], list[str]]
"""Type, encoding, outcome, pages; the versions of which that holds."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--into", type=Path, default=DATA, help="where the folders go")
    parser.add_argument("--only", action="append", help="this version alone; may be repeated")
    parser.add_argument("--all", action="store_true", help="all cases, not only those committed")
    parser.add_argument("--work", type=Path, help="keep jars and classes here for the next run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        work = options.work or Path(scratch)
        pairs: Pairs = {}
        made = [
            (library, make(library, work / library.folder, pairs))
            for library in LIBRARIES
            if not options.only or library.version in options.only
        ]
        entries: list[dict[str, object]] = []
        for library, files in made:
            entries += publish(library, files, options.into, everything=options.all)
    if not options.only:
        write_pairs(pairs)
        index = json.dumps(entries, indent=1, ensure_ascii=False)
        (options.into / "index.tsfile.json").write_text(index + "\n", encoding="utf-8")


def make(library: Library, work: Path, pairs: Pairs) -> list[Path]:
    """Run one version; return its files, and add to what is known of its pairs."""
    classpath = [*jars(library, work), compile_sources(library, work)]
    outcome = work / "outcome"
    shutil.rmtree(outcome, ignore_errors=True)
    outcome.mkdir(parents=True)
    with (work / "log").open("wb") as log:
        command = ["java", "-Duser.timezone=UTC", "-cp", joined(classpath), "Main", str(outcome)]
        subprocess.run(command, check=True, stdout=log, stderr=subprocess.STDOUT)
    probed(outcome / "probe.tsv", library.version, pairs)
    return sorted(outcome.glob("*.tsfile"))


def publish(
    library: Library, files: list[Path], into: Path, *, everything: bool
) -> list[dict[str, object]]:
    """Put the files and their rows where they belong; return their entries of the index."""
    target = into / library.folder
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    entries = [
        publish_one(library, path, target)
        for path in files
        if everything or path.stem in library.keep
    ]
    total = sum(path.stat().st_size for path in target.iterdir())
    print(f"{library.folder}: {len(entries)} files, {total} bytes", flush=True)
    return entries


def jars(library: Library, work: Path) -> list[Path]:
    """Fetch the library and what it needs, once."""
    target = work / "jars"
    if not target.is_dir():
        work.mkdir(parents=True, exist_ok=True)
        pom = work / "pom.xml"
        pom.write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            "<groupId>tsferry</groupId><artifactId>realfiles</artifactId><version>1</version>"
            f"<dependencies><dependency><groupId>{library.group}</groupId><artifactId>tsfile"
            f"</artifactId><version>{library.version}</version></dependency></dependencies>"
            "</project>",
            encoding="utf-8",
        )
        copy = f"-DoutputDirectory={target}"
        goal = ["dependency:copy-dependencies", copy, "-DincludeScope=runtime"]
        subprocess.run(["mvn", "-q", "-B", "-f", str(pom), *goal], check=True)
    return sorted(target.glob("*.jar"))


def compile_sources(library: Library, work: Path) -> Path:
    """Compile our sources with the names that this version has."""
    sources, classes = work / "sources", work / "classes"
    for folder in (sources, classes):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    for path in (path for name in library.sources for path in sorted((JAVA / name).glob("*.java"))):
        text = path.read_text(encoding="utf-8")
        for old, new in library.names:
            text = re.sub(rf"\b{re.escape(old)}\b", new, text)
        (sources / path.name).write_text(text, encoding="utf-8")
    classpath = joined(sorted((work / "jars").glob("*.jar")))
    files = [str(path) for path in sorted(sources.glob("*.java"))]
    options = ["-nowarn", "-encoding", "UTF-8", "-d", str(classes), "-cp", classpath]
    subprocess.run(["javac", *options, *files], check=True)
    return classes


def joined(paths: list[Path]) -> str:
    return ":".join(map(str, paths))


def publish_one(library: Library, path: Path, target: Path) -> dict[str, object]:
    """Copy a file, write its rows beside it, and say what it is."""
    case = path.stem
    shutil.copyfile(path, target / path.name)
    table = case.startswith("tables")
    rows = sorted(read_rows(path.with_suffix(".rows"), table=table))
    expected = target / f"{case}.rows.csv.gz"
    write_rows(expected, [row[1] for row in rows])
    return {
        "file": f"{target.name}/{path.name}",
        "writer": library.writer,
        "format": library.format,
        "model": "table" if table else "tree",
        "time_unit": "ns" if case.endswith("times") else "ms",
        "covers": COVERS[case],
        "expected": {
            "file": f"{target.name}/{expected.name}",
            "form": "long",
            "deletions": False,
        },
        "mods": None,
    }


def read_rows(path: Path, *, table: bool) -> Iterator[tuple[tuple[str, int, str], list[str]]]:
    """Yield sort key and fields of each row that the Java side wrote."""
    with path.open(encoding="utf-8", newline="\n") as lines:
        for line in lines:
            segments, time, measurement, kind, value = line.rstrip("\n").split("\t")
            device = device_name(trimmed(json.loads(segments)), table=table)
            name = json.loads(measurement)
            if kind in ("TEXT", "STRING"):
                value = json.dumps(json.loads(value), ensure_ascii=False)
            yield (device, int(time), name), [device, time, name, kind, value]


def trimmed(segments: list[str | None]) -> tuple[str | None, ...]:
    """Segments as a file has them: null tags at the end are left out."""
    while segments[-1] is None:
        segments.pop()
    return tuple(segments)


def write_rows(path: Path, rows: list[list[str]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["device", "time", "measurement", "type", "value"])
    writer.writerows(rows)
    path.write_bytes(gzip.compress(text.getvalue().encode("utf-8"), 9, mtime=0))


def probed(path: Path, version: str, pairs: Pairs) -> None:
    """Add what a version's probe found. A pair of which every page is refused is left out."""
    found: dict[str, dict[str, list[str]]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        pair, pattern, outcome = line.split("\t")
        if pair.startswith("case "):
            raise RuntimeError(f"{version}: {pair}: {outcome}")
        found.setdefault(pair, {}).setdefault(outcome, []).append(pattern)
    for pair, outcomes in found.items():
        if not all(outcome.startswith("refused") for outcome in outcomes):
            for outcome, patterns in outcomes.items():
                row = (*pair.split(" "), outcome, ",".join(patterns))
                pairs.setdefault(row, []).append(version)


def write_pairs(pairs: Pairs) -> None:
    lines = ["type\tencoding\toutcome\tpages\tversions"]
    lines += sorted("\t".join((*row, ",".join(versions))) for row, versions in pairs.items())
    PAIRS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
