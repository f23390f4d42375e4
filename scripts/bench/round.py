"""One round over loopback, as a user would run it: many small files, one large one, many devices.

    .venv/bin/python scripts/bench/round.py [--small 1000] [--large-mib 256] [--devices 10000]
                                            [--json]

Each is a round of the real sender to the real receiver, in a fresh directory; the time is what
`sync --json` reports, from the check to the committed outcome.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.bench.as_installed import compile_modules  # noqa: E402
from tests.support.tsfile_bytes import build  # noqa: E402

BIN = Path(sys.executable).parent


def sample(device: str, begin: int) -> dict:
    return {device: {"s1": [(begin + n, n) for n in range(50)]}}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--small", type=int, default=1000)
    options.add_argument("--large-mib", type=int, default=256)
    options.add_argument("--devices", type=int, default=10_000)
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    many = {f"root.many.d{n}": {"s1": [(n, n)]} for n in range(given.devices)}
    rounds = {
        f"{given.small} small files": [
            build(sample(f"root.s.d{n % 20}", n * 100)) for n in range(given.small)
        ],
        f"one file of {given.devices} devices": [build(many)],
        f"one file of {given.large_mib} MiB": [
            build(sample("root.l.d", 0), pad_to=given.large_mib << 20)
        ],
    }
    compile_modules()
    with tempfile.TemporaryDirectory() as run:
        found = measure(Path(run), rounds)
    if given.json:
        print(json.dumps({what: report["seconds"] for what, report in found.items()}))
        return
    for what, report in found.items():
        print(
            f"{what}: {report['sent']} loaded, {report['bytes']:,} bytes, {report['seconds']:.1f} s"
        )


def measure(run: Path, rounds: dict[str, list[bytes]]) -> dict[str, dict[str, float]]:
    """What `sync --json` reported of each round."""
    found = {}
    centre, edge = run / "centre.toml", run / "edge.toml"
    centre.write_text('schema_dir = "cs"\ndata_dirs = ["cd"]\n')
    for name in ("cs", "cd", "es", "ed"):
        (run / name).mkdir()
    ready = run / "ready"
    server = subprocess.Popen(
        [BIN / "tsferry-receiver", "-c", centre, "serve", "--port", "0", "--ready-file", ready],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not ready.exists():
            if server.poll() is not None:
                raise SystemExit(f"the receiver ended with exit code {server.returncode}")
            time.sleep(0.05)
        edge.write_text(
            'schema_dir = "es"\ndata_dirs = ["ed"]\nclosed_by = "tail"\nquiet_seconds = 0\n'
            f'[[receiver]]\nname = "c"\nurl = "{ready.read_text().strip()}"\n'
        )
        subprocess.run(
            [BIN / "tsferry-sender", "-c", edge, "init"], check=True, capture_output=True
        )
        for number, (what, files) in enumerate(rounds.items()):
            place = run / "ed" / "sequence" / "root.b" / "0" / str(number)
            place.mkdir(parents=True)
            for at, content in enumerate(files):
                (place / f"{at + 1}-{at}-0-0.tsfile").write_bytes(content)
            done = subprocess.run(
                [BIN / "tsferry-sender", "-c", edge, "sync", "--json"],
                check=True,
                capture_output=True,
                text=True,
            )
            found[what] = json.loads(done.stdout)
    finally:
        server.terminate()
        server.wait(30)
    return found


if __name__ == "__main__":
    main()
