"""The Java TsFile library as a peer: its jars by Maven, our sources of java_reader compiled."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).resolve().parent / "java_reader"
VERSION = "2.4.0"


class JavaPeer:
    """Writes files and reads them, each in a JVM of its own.

    Args:
        work: where jars and classes go; kept, the next run need not fetch them.
        version: of org.apache.tsfile:tsfile, 2.2 or later.
    """

    def __init__(self, work: Path, version: str = VERSION) -> None:
        self.version = version
        self._folder = work.resolve() / f"tsfile-{version}"
        self._classes = self._folder / "classes"
        jars = self._folder / "jars"
        if not jars.is_dir():
            self._fetch(jars)
        self._path = ":".join([*map(str, sorted(jars.glob("*.jar"))), str(self._classes)])
        self._classes.mkdir(exist_ok=True)
        sources = [str(path) for path in sorted(SOURCES.glob("*.java"))]
        options = ["-nowarn", "-encoding", "UTF-8", "-d", str(self._classes), "-cp", self._path]
        subprocess.run(["javac", *options, *sources], check=True, stderr=subprocess.PIPE)

    def _fetch(self, jars: Path) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        pom = self._folder / "pom.xml"
        pom.write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            "<groupId>tsferry</groupId><artifactId>bench</artifactId><version>1</version>"
            "<dependencies><dependency><groupId>org.apache.tsfile</groupId><artifactId>tsfile"
            f"</artifactId><version>{self.version}</version></dependency></dependencies></project>",
            encoding="utf-8",
        )
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={jars}", "-q", "-B"]
        command = ["mvn", "-f", str(pom), *goal, "-DincludeScope=runtime"]
        subprocess.run(command, check=True, stdout=sys.stderr)  # stdout is for figures

    def write(self, path: Path, kind: str, encoding: str, shape: Shape, values: str) -> None:
        """Write a file of doubles; ``kind`` plain, aligned or table, ``values`` walk or noise."""
        self._run("Write", str(path), kind, encoding, *map(str, shape), values, heap="1g")

    def reading(self, mode: str, passes: int, path: Path) -> dict[str, float]:
        """Read a file; of the last pass: points, seconds, cpu (seconds), sum.

        ``mode`` is ``pages`` (the fastest way) or ``query`` (the public one).
        """
        found: dict[str, float] = json.loads(
            self._run("Read", mode, str(passes), str(path), heap="2g")
        )
        return found

    def _run(self, name: str, *arguments: str, heap: str) -> str:
        command = ["java", f"-Xmx{heap}", "-cp", self._path, name, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"java {name} ended with {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout


Shape = tuple[int, int, int]
"""Devices, rows of each, columns."""
