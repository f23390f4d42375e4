"""A standalone Spark cluster on loopback: a master and workers, each a process of its own."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from receiver.spark.verify.java import find_java_home
from tests.support.procs import Child, Children

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_DEFAULTS = f"""
spark.ui.enabled                              false
spark.driver.host                             127.0.0.1
spark.driver.bindAddress                      127.0.0.1
spark.driver.extraJavaOptions                 {_JAVA}
spark.executor.memory                         512m
spark.executor.extraJavaOptions               {_JAVA}
spark.scheduler.minRegisteredResourcesRatio   1
"""
"""Work begins when all workers are there: each gets some of it."""
BOUND = 120.0
"""Seconds for a program in Java to be ready."""


class Cluster:
    """A master; workers join one by one.

    Attributes:
        url: of the master.
        environment: for programs that use the cluster, beside what they need themselves.
    """

    def __init__(self, children: Children, directory: Path) -> None:
        import pyspark

        home = Path(pyspark.__file__).parent
        (directory / "conf").mkdir(parents=True)
        (directory / "conf/spark-defaults.conf").write_text(_DEFAULTS)
        self._children, self._directory = children, directory
        self._class = str(home / "bin/spark-class")
        self._workers: list[Child] = []
        self.submit = str(home / "bin/spark-submit")
        self.environment = {
            "SPARK_HOME": str(home),
            "SPARK_CONF_DIR": str(directory / "conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "JAVA_HOME": str(find_java_home(os.environ)),
        }
        master = self._start(_MASTER, "--port", "0")
        found = self._until(master, r"Starting Spark master at (spark://\S+)")
        self.url = found[1]

    def add_workers(self, wraps: Sequence[Sequence[str]]) -> list[Child]:
        """Start workers, each as the end of a command line, and wait until all have joined."""
        for wrap in wraps:
            place = self._directory / f"worker-{len(self._workers)}"
            arguments = ("--port", "0", "--cores", "1", "--memory", "512m", "--work-dir", place)
            self._workers.append(self._start(_WORKER, *map(str, arguments), self.url, wrap=wrap))
        for each in self._workers:
            self._until(each, "Successfully registered with master")
        return self._workers

    def python_of(self, worker: Child) -> int | None:
        """The first process of Python that works below a worker; None if there is none yet."""
        for executor in _below(worker.pid):
            for each in _below(executor):
                return each
        return None

    def _start(self, name: str, *arguments: str, wrap: Sequence[str] = ()) -> Child:
        command = [*wrap, self._class, name, "--host", "127.0.0.1", "--webui-port", "0"]
        options = f"{_JAVA} -Dspark.master.rest.enabled=false"
        memory: Mapping[str, str] = {
            "SPARK_DAEMON_MEMORY": "128m",
            "SPARK_DAEMON_JAVA_OPTS": options,
        }
        return self._children.start([*command, *arguments], env={**self.environment, **memory})

    def _until(self, child: Child, pattern: str) -> re.Match[str]:
        def said() -> re.Match[str] | None:
            return re.search(pattern, child.text())

        found: re.Match[str] = child.until(said, pattern, bound=BOUND)
        return found


def _below(pid: int) -> list[int]:
    """The children of a process; none if it is gone."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(each) for task in tasks for each in (task / "children").read_text().split()]
    except OSError:
        return []
