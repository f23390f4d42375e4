"""All benchmarks, one after the other, and the pages made from them: hours, on a quiet machine.

    sudo .venv/bin/python scripts/bench/everything.py [--servers DIR] [--s3fs PYTHON] [--list]
                                                      [--only NAME ...] [--into DIR]

What each prints lies in the directory (`build/bench/all`) under its name, beside `summary.json`:
the command, its exit code, seconds, and the load average that it met. One that fails holds up no
other; the exit code is 1 then. Those that compare two checkouts are not among them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

COMMANDS: dict[str, list[str]] = {
    "performance": ["performance_page.py"],
    "transfer-larger": [
        "transfer.py", "--work", "1 x 2 GiB", "--work", "16 x 128 MiB", "--work", "10,000 x 20 KB",
        "--json", "{into}/transfer-larger.json",
    ],
    "profile-large": ["transfer_profile.py", "--json", "{into}/profile-large.json"],
    "profile-small": [
        "transfer_profile.py", "--work", "5,000 x 20 KB", "--json", "{into}/profile-small.json",
    ],
    "figures": ["figures_page.py"],
    "verify": ["verify.py", "--json", "{into}/verify.json"],
    "storage": ["storage.py", "--write"],
    "storage-clients": ["storage_clients.py"],
    "cold-reads": ["cold_reads.py"],
    "cache-slots": ["cache_slots.py"],
    "deletion-notes": ["deletion_notes.py"],
    "idle-memory": ["idle_memory.py", "--limit", "100"],
    "operator-pages": ["operator_pages.py"],
    "scrape": ["scrape.py"],
    "transactions": ["transactions.py"],
    "schema-logs": ["schema_logs.py"],
    "spark-source": ["spark_source.py"],
    "tree": ["tree.py"],
    "writing": ["writing.py"],
    "proof": ["proof.py"],
    "merging": ["merging.py"],
    "compacting": ["compacting.py"],
    "exporting": ["exporting.py"],
    "compacted-reads": ["compacted_reads.py", "--json", "{into}/compacted-reads.json"],
    "fetched-in-turn": ["fetched_in_turn.py"],
    "background-work": ["background_work.py"],
    "locating": ["locating.py"],
    "scale": ["scale.py", "--write"],
    "two-nodes": ["two_nodes.py", "--write"],
    "rounds-meanwhile": ["rounds_meanwhile.py"],
    "spark-writes": ["spark_writes.py"],
    "spark-devices": ["spark_devices.py", "--kill"],
    "large-commit": ["large_commit.py"],
    "load-decision": ["load_decision.py", "--files", "10000"],
}  # fmt: skip


def run(name: str, words: list[str], into: Path) -> dict[str, object]:
    """One of them; what became of it."""
    command = [sys.executable, str(ROOT / "scripts" / "bench" / words[0])]
    command += [each.format(into=into) for each in words[1:]]
    load, begin = os.getloadavg()[0], time.perf_counter()
    with open(into / f"{name}.txt", "w") as out:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=out,
            stderr=out,
            check=False,
        )
    code = done.returncode
    seconds = round(time.perf_counter() - begin, 1)
    print(f"{name}: exit code {code}, {seconds:.0f} s, load {load:.1f} before it", flush=True)
    return {"command": command, "exit_code": code, "seconds": seconds, "load": load}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--servers", type=Path, help="as `scripts/live fetch` makes it")
    options.add_argument("--s3fs", help="an interpreter that has s3fs; without, that is left out")
    options.add_argument("--only", nargs="+", choices=list(COMMANDS), default=list(COMMANDS))
    options.add_argument("--list", action="store_true", help="what there is, and run nothing")
    options.add_argument("--into", type=Path, default=ROOT / "build" / "bench" / "all")
    given = options.parse_args()
    if given.list:
        print("\n".join(f"{name}: {' '.join(words)}" for name, words in COMMANDS.items()))
        return 0
    given.into.mkdir(parents=True, exist_ok=True)
    summary: dict[str, dict[str, object]] = {}
    for name in given.only:
        words = list(COMMANDS[name])
        if name == "storage-clients":
            if not given.s3fs:
                continue
            words += ["--s3fs", given.s3fs]
        if name == "performance" and given.servers:
            words += ["--servers", str(given.servers)]
        summary[name] = run(name, words, given.into)
        (given.into / "summary.json").write_text(json.dumps(summary, indent=1))
    return max((1 if each["exit_code"] else 0 for each in summary.values()), default=0)


if __name__ == "__main__":
    sys.exit(main())
