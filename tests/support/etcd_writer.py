"""A receiver's engine over etcd as a process of its own, to be killed: it commits until then.

    python -m tests.support.etcd_writer <url> <prefix> <schema dir>

Each line that it writes is a key whose commit was acknowledged.
"""

import sys
from pathlib import Path

from receiver.metadata.engine import Engine
from receiver.metadata.etcd.commits import open_remote
from receiver.metadata.kv.embedded import EmbeddedKV
from receiver.metadata.model import records
from tests.support.etcd import Settings


def main() -> None:
    url, prefix, directory = sys.argv[1:]
    remote = open_remote(Settings((url,), prefix, lease=2.0))
    engine = Engine.open(Path(directory), remote=remote, background=False)
    begin = len(EmbeddedKV(engine).load_with_prefix("0")[0])
    print("open", flush=True)
    for number in range(begin, begin + 10_000):
        key = f"{number:06}"
        # Every third is larger than one request to etcd.
        value = "x" * (600_000 if number % 3 == 0 else 10)
        engine.commit([records.KeysWritten((), {key: "x", "y": value, "z": value})])
        print(key, flush=True)
        if number % 7 == 6:
            engine.checkpoint()


if __name__ == "__main__":
    main()
