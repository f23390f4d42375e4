"""Workers of Spark that have neither the disk nor a store read of a running receiver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from receiver.operator.edges.tokens import make_token
from receiver.storage.reading.receiver_reads import TOKEN, TOKEN_PATH
from tests.support.architecture import ROOT
from tests.support.centre import centre
from tests.support.spark_world import NORTH, World
from tests.support.stored_world import LARGE_DEVICES, large
from tests.support.tsfile_bytes import build

SCRIPT = """
import json, sys
from pathlib import Path
from receiver.spark.verify.session import start

url, token, elsewhere, file = sys.argv[1:]
read = start("local[2]").read.format("tsfile").option("catalog", url).option("token", token)
frame = read.option("dataDirs", elsewhere).schema("time bigint, device string, n bigint").load()
try:
    frame.count()
    refused = ""
except Exception as error:
    refused = str(error)
Path(file).write_text(token)
rows = sorted([tuple(each) for each in frame.collect()])
plan = frame._jdf.queryExecution().toString()
print(json.dumps({"refused": refused, "rows": rows, "told": token in plan}), flush=True)
"""


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.slow
def test_workers_read_by_the_token_of_their_environment_and_are_refused_without(
    tmp_path: Path,
) -> None:
    pytest.importorskip("pyspark")
    world = World(tmp_path / "centre")
    world.load(NORTH, "sequence/root.wind/0/0/1-1-0-0.tsfile", large()[0])
    small = build({"root.wind.e": {"n": [(5, 1), (6, 2)]}})
    world.load(NORTH, "sequence/root.wind/0/0/2-2-0-0.tsfile", small)
    token = make_token(world.engine, "reader").token
    world.engine.close()
    (tmp_path / "token").write_text("nobodys")
    environ = {key: value for key, value in os.environ.items() if key != TOKEN}
    environ[TOKEN_PATH] = str(tmp_path / "token")
    with centre(tmp_path) as served:
        url = served.start()
        elsewhere = str(tmp_path / "elsewhere")
        given = [sys.executable, "-c", SCRIPT, url, token, elsewhere, environ[TOKEN_PATH]]
        done = subprocess.run(given, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environ)
    said = json.loads(done.stdout.splitlines()[-1])
    assert TOKEN_PATH in said["refused"]
    assert "nobodys" not in said["refused"]
    assert token not in said["refused"]
    assert len(said["rows"]) == 2 + 12 * len(LARGE_DEVICES)
    assert [5, "root.wind.e", 1] in said["rows"]
    assert not said["told"]
