"""Random histories of a centre with an object store, in real processes; then a judge.

    .venv/bin/python scripts/storage_drill.py [--seed N] [--lives 1] [--minutes M] [--steps 25]
                                              [--s3] [--keep]

A life is made of its seed: policies, the size of the disk, and what happens. Two edges add, delete,
compact and rewrite files all the time, and send them by single rounds. The receiver and the rounds
are killed at random moments and at crash points, at the start too; the store goes away and comes
back; operators fetch files, change policies and have the machine take over; and the machine burns
down and is made anew of the store, by a restore that may itself be cut off.

The ledger is what the edges wrote. After each restore, and at the end when everything has come to
rest: whatever readers see is whole, here or in the store, and there once; with `before_ack` nothing
that was acknowledged is missing; and at the end both sides have the same, copies are complete,
`fsck`, `fsck --storage --deep` and `restore --check --deep` find nothing. Exit code 0 if all of
that holds; else the directory is kept.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from click.testing import CliRunner  # noqa: E402

from common.config import load  # noqa: E402
from receiver.cli.commands import cli  # noqa: E402
from receiver.config import ENV_PREFIX, ReceiverConfig  # noqa: E402
from scripts.ended_by_signals import end_on_signals  # noqa: E402
from tests.support.centre import COMMAND, Centre  # noqa: E402
from tests.support.procs import Child, Children, children, wait_until  # noqa: E402
from tests.support.s3_server import KEY, REGION, SECRET, S3Server, s3_server  # noqa: E402
from tests.support.stored_ledger import StoredLedger  # noqa: E402
from tests.support.workload import Workload  # noqa: E402

SENDER = str(Path(sys.executable).with_name("tsferry-sender"))
CODES = {0, 3, 4, 5, 6}
"""How a round may end by itself while the other side comes and goes."""
_PACE = 0.05
"""Seconds between two changes at an edge."""
_REST = 60.0
"""Seconds in which rounds come to rest."""
_SENDER = """\
schema_dir = "schema"
data_dirs = ["data"]
propagate_deletes = "{propagate}"
task_max_files = 12
[[receiver]]
name = "centre"
url = "{url}"
[transfer]
chunk_bytes = "64KiB"
batch_bytes = "64KiB"
retry_first = "50ms"
retry_max = "500ms"
read_timeout = "10s"
load_poll = "1s"
load_timeout = "5s"
"""


class Broken(Exception):
    """A promise."""


class EdgeRounds:
    """An edge at work, and its rounds, one process after the other."""

    def __init__(
        self,
        root: Path,
        seed: int,
        processes: Children,
        propagate: str,
        pads: tuple[int | None, ...],
    ) -> None:
        self.root, self.propagate, self._processes = root, propagate, processes
        self.files = Workload(root / "data", root.name, seed, most=25, pads=pads)
        self.config = root / "sender.toml"
        self.freed: dict[str, str] = {}
        self.child: Child | None = None
        self._next = 0.0
        self.rounds = 0

    def set_up(self, url: str) -> None:
        (self.root / "data").mkdir(parents=True)
        self.config.write_text(_SENDER.format(propagate=self.propagate, url=url))
        done = self._processes.start([SENDER, "--config", str(self.config), "init"], forked=True)
        assert done.wait() == 0, done.text()
        self.uuid = (self.root / "schema" / "sync" / "uuid.txt").read_text().strip()

    def listed(self) -> set[str]:
        """What was acknowledged."""
        found = (self.root / "data").glob("sync-sender/*/last_local_files.txt")
        return {line for each in found for line in each.read_text().splitlines()}

    def notice_freed(self) -> None:
        """Files that `free` removed are nobody's here any more."""
        for path, written in list(self.files.files.items()):
            if not (self.root / "data" / path).exists():
                del self.files.files[path]
                (self.root / "data" / f"{path}.resource").unlink(missing_ok=True)
                self.freed[path] = written.md5

    def rewritten(self) -> set[str]:
        """Paths that had several contents: which of them was acknowledged is not known here."""
        counts = Counter(path for path, _ in self.files.ever)
        return {path for path, count in counts.items() if count > 1}

    def tick(self, rng: random.Random) -> None:
        """Change a file now and then, and see that a round runs."""
        if time.monotonic() >= self._next:
            self.files.step()
            self._next = time.monotonic() + _PACE
        if self.child is None or not self.child.running:
            self.ended()
            crash = rng.random() < 0.2
            env = {"TSFERRY_CRASH_AT": f"*:{int(2 ** rng.uniform(0, 9))}"} if crash else {}
            self.begin(env)

    def begin(self, env: dict[str, str] | None = None, *, more: tuple[str, ...] = ()) -> None:
        command = [SENDER, "--config", str(self.config), "sync", "--json", *more]
        self.child = self._processes.start(command, env=env, forked=True)
        self.rounds += 1

    def ended(self) -> None:
        """See that a round which ended did so as it may."""
        if self.child is not None and self.child.returncode not in CODES | {-signal.SIGKILL}:
            raise Broken(f"a round of {self.root.name} ended with {self.child.text()[-3000:]}")

    def kill(self) -> None:
        if self.child is not None:
            self.child.kill()
            self.child = None

    def last_rounds(self, acknowledge: Callable[[], object], *, may_lose: bool) -> None:
        """Until one has nothing to do.

        Args:
            acknowledge: has an operator know of lost files.
            may_lose: the centre may have lost ends that were acknowledged.
        """
        told: list[Any] = []
        end = time.monotonic() + _REST
        while time.monotonic() < end:
            self.begin()
            assert self.child is not None
            code = self.child.wait(bound=120)
            try:
                report = json.loads(re.sub(r"(?s)^.*?^(?=\{$)", "", self.child.text(), flags=re.M))
            except ValueError:
                told.append((code, self.child.text()[-500:]))
                time.sleep(1)
                continue
            work = {key: report[key] for key in ("sent", "already", "deleted", "retired")}
            told.append((code, work, len(report["held"]), len(report["lost"])))
            if code == 0 and not report["held"] and not any(work.values()):
                return
            if report["lost"]:
                # What never came to the store and has ended at the edge: named, and somebody knows.
                acknowledge()
            if any("--accept-source" in each["reason"] for each in report["held"]):
                # The centre lost the commit that an end was acknowledged by: somebody has to say.
                if not may_lose:
                    break
                self.begin(more=("--accept-source",))
                assert self.child is not None
                self.child.wait(bound=120)
            time.sleep(0.3)
        raise Broken(
            f"{self.root.name} does not come to rest: {told[-3:]}; {self.child.text()[-2000:]}"
        )


class Life:
    """One history."""

    def __init__(self, run: Path, seed: int, processes: Children, server: S3Server | None) -> None:
        self.run, self.rng, self.server = run, random.Random(seed), server
        self.processes = processes
        self.before_ack = self.rng.random() < 0.4
        self.turns = self.rng.random() < 0.3
        self.frees = self.before_ack and not self.turns
        self.is_restored = self.is_turned = self.is_away = False
        self.bucket = run / "bucket"
        self.told: list[str] = []
        self.centre = Centre(run / "centre", processes, self._settings(seed))
        draws = [self.rng.randrange(1 << 32) for _ in range(2)]
        self.edges = [
            EdgeRounds(run / "north", draws[0], processes, "all", self.pads),
            EdgeRounds(run / "south", draws[1], processes, "replaced", self.pads),
        ]

    def _settings(self, seed: int) -> str:
        rng = self.rng
        if self.server is None:
            self.bucket.mkdir()
            lines = [f'url = "{self.bucket.as_uri()}"']
        else:
            lines = [f'url = "s3://drill-{seed}/centre"', f'endpoint = "{self.server.endpoint}"']
            lines += [f'region = "{REGION}"', "path_style = true"]
        self.pads: tuple[int | None, ...] = (None, None, 30_000)
        is_small = rng.random() < 0.7
        if is_small:
            # What a partition brings together has to fit, or it is never taken.
            size, self.pads = rng.choice([(160, (None,)), (500, (None, None, 30_000))])
            lines += [f'capacity = "{size}K"', 'pin_wait = "1s"']
        upload = '"at once"'
        if not self.before_ack:
            never = '[{ group = "root.shared", upload = "never" }]'
            # What is never in the store makes no room: a small disk would be full for good.
            upload = rng.choice([upload, upload, '"1s"', upload if is_small else never])
        self.keeps = "never" in upload
        lines += [f"upload = {upload}", f"before_ack = {str(self.before_ack).lower()}"]
        lines += [f"lag = {rng.choice([0.1, 0.5, 2.0])}", f"parallel = {rng.choice([1, 4])}"]
        lines += [f"tree = {str(rng.random() < 0.3).lower()}", "tree_every = 0.5"]
        # Nor does what was deleted before it came there, for as long as it is kept.
        kept = rng.choice(["1s", "8s" if is_small else "1h"])
        lines += ["[load]", f'keep_deleted = "{kept}"']
        lines += ["[metadata]", f'history = "{rng.choice(["1s", "1h"])}"']
        self.say(f"seed {seed}: {'; '.join(lines)}")
        return "[storage]\n" + "\n".join(lines) + "\n"

    def say(self, text: str) -> None:
        self.told.append(f"{time.monotonic() - _BEGUN:7.1f} s  {text}")
        print(self.told[-1], flush=True)

    # -- what happens --------------------------------------------------------------------------

    def rage(self, steps: int) -> None:
        """Have things happen, one after the other, while edges work."""
        url = self.centre.start()
        for edge in self.edges:
            edge.set_up(url)
        wait_until(lambda: self.status().get("shipped"), "a first copy of the log")
        happenings = {
            self.killed: 5, self.killed_at_start: 2, self.round_killed: 2, self.burnt: 2,
            self.store_away: 2, self.fetched: 2, self.taken_over: 1, self.policy: 1,
            self.turned_back: 2 * self.turns, self.freed: 3 * self.frees,
        }  # fmt: skip
        for _ in range(steps):
            self.go_on(self.rng.choice([0.1, 0.5, 1.0, 2.5]))
            happening = self.rng.choices(list(happenings), list(happenings.values()))[0]
            self.say(happening.__name__.replace("_", " "))
            happening()

    def go_on(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.see_it_runs()
            for edge in self.edges:
                edge.tick(self.rng)
            time.sleep(0.01)

    def see_it_runs(self) -> None:
        assert self.centre.server is not None
        code = self.centre.server.returncode
        if code is None:
            return
        if code != -signal.SIGKILL:
            raise Broken(f"the receiver ended with {code}: {self.centre.server.text()[-3000:]}")
        self.start()

    def start(self) -> None:
        """Half the time to die at a step."""
        crash = self.rng.random() < 0.5
        nth = int(2 ** self.rng.uniform(0, 11))
        self.centre.start(env={"TSFERRY_CRASH_AT": f"*:{nth}"} if crash else {})

    def killed(self) -> None:
        self.centre.kill()
        self.start()

    def killed_at_start(self) -> None:
        self.centre.kill()
        for _ in range(self.rng.randint(1, 3)):
            child = self.processes.start(self.command("serve"), forked=True)
            self.centre.server = child
            time.sleep(self.rng.uniform(0.0, 0.8))
            child.kill()
        self.start()

    def round_killed(self) -> None:
        self.rng.choice(self.edges).kill()

    def burnt(self) -> None:
        """The machine, with all that is on it."""
        self.come_back()
        for edge in self.edges:
            edge.kill()
        self.centre.kill()
        shutil.rmtree(self.centre.root / "schema")
        shutil.rmtree(self.centre.data)
        self.centre.data.mkdir()
        listed = {edge.uuid: edge.listed() for edge in self.edges}
        self.restore()
        self.is_restored = True
        self.look(listed)
        self.start()

    def store_away(self) -> None:
        if self.is_away:
            self.come_back()
            return
        self.is_away = True
        if self.server is not None:
            self.server.stop()
            return
        self.bucket.rename(self.run / "away")
        if self.rng.random() < 0.5:
            self.bucket.mkdir()  # as under a mount that is away

    def come_back(self) -> None:
        if not self.is_away:
            return
        self.is_away = False
        if self.server is not None:
            self.server.start()
            return
        if self.bucket.exists():
            strays = [str(each) for each in self.bucket.rglob("*") if each.is_file()]
            if strays:
                raise Broken(f"put under a mount that was away: {strays}")
            shutil.rmtree(self.bucket)
        (self.run / "away").rename(self.bucket)

    def fetched(self) -> None:
        """By name: some, or all; what does not come is told, and no fault."""
        child = self.processes.start(self.command("storage", "fetch", "*"), forked=True)
        self.go_on(self.rng.uniform(0.2, 2.0))
        child.kill()

    def taken_over(self) -> None:
        self.centre.kill()
        self.come_back()
        self.operator("storage", "takeover")
        self.start()

    def freed(self) -> None:
        """The south removes what the centre holds, which has it from then on, whatever comes."""
        south = self.edges[1]
        command = [SENDER, "--config", str(south.config), "free"]
        child = self.processes.start(command, forked=True)
        if self.rng.random() < 0.3:
            time.sleep(self.rng.uniform(0.1, 0.6))  # the workload would trip over what goes
            child.kill()
        elif child.wait(bound=60) not in CODES:
            raise Broken(f"free ended with {child.returncode}: {child.text()[-2000:]}")
        south.notice_freed()
        self.say(f"{len(south.freed)} files are freed by now")

    def turned_back(self) -> None:
        """The machine, to its schema directory of before; as its page says it has to go on."""
        self.centre.kill()
        self.come_back()
        kept, schema = self.run / "kept", self.centre.root / "schema"
        if not kept.exists():
            shutil.copytree(schema, kept)
            self.start()
            return
        shutil.rmtree(schema)
        kept.rename(schema)
        self.is_turned = True
        self.centre.start()
        self.go_on(1.0)
        self.centre.kill()
        self.operator("storage", "takeover")
        self.operator("fsck", "--storage", "--adopt")
        self.operator("fsck", "--repair", "--confirm")
        self.start()

    def policy(self) -> None:
        said = self.rng.choice(["set upload to {} after 2s", "unset upload to {}"])
        command = self.command("sql", said.format("root.shared"))
        child = self.processes.start(command, forked=True)
        child.wait()

    # -- looking -------------------------------------------------------------------------------

    def restore(self) -> None:
        more = ("--on-demand",) if self.rng.random() < 0.3 else ()
        for _ in range(self.rng.choice([0, 0, 1, 2])):
            nth = int(2 ** self.rng.uniform(0, 8))
            env = {"TSFERRY_CRASH_AT": f"*:{nth}"}
            child = self.processes.start(self.command("restore", *more), env=env, forked=True)
            code = child.wait(bound=120)
            if code not in (0, 3, -signal.SIGKILL):
                raise Broken(f"a restore ended with {code}: {child.text()}")
            if code >= 0:
                return
        child = self.processes.start(self.command("restore", *more), forked=True)
        if child.wait(bound=120) not in (0, 3):
            raise Broken(f"a restore ended with {child.returncode}: {child.text()}")
        named = len(re.findall(r"^not in the store: ", child.text(), re.MULTILINE))
        self.say(f"restored, {named} named")

    def look(self, listed: dict[str, set[str]]) -> None:
        """Right behind a restore."""
        ledger = self.ledger()
        problems = ledger.whole(self.by_uuid())
        # What was acknowledged since the moment that it was turned back to comes again by itself.
        for edge in self.edges if self.before_ack and not self.is_turned else ():
            # Of a file that has ended at the edge the end may be here and not acknowledged yet.
            gone = listed[edge.uuid] & edge.files.files.keys() - ledger.live(edge.uuid).keys()
            gone |= listed[edge.uuid] & ledger.wanted(edge.uuid) - edge.rewritten()
            problems += [f"{path}: acknowledged, and not here after a restore" for path in gone]
            problems += ledger.lacking(edge.uuid, edge.freed)
        ledger.close()
        if problems:
            raise Broken("after a restore: " + "\n".join(problems))

    def rest(self) -> None:
        """Everything comes to rest, and is judged."""
        self.come_back()
        for edge in self.edges:
            edge.kill()
            edge.files.settle()
        self.centre.kill()
        self.centre.start()
        for edge in self.edges:
            edge.last_rounds(
                lambda uuid=edge.uuid: self.operator(
                    "lost", "acknowledge", "--sender", uuid, "--all"
                ),
                may_lose=not self.before_ack or self.is_turned,
            )
        try:
            wait_until(self.is_copied, "all is copied", bound=40)
        except AssertionError:
            raise Broken(f"copies do not come to rest: {self.status()}") from None
        found = self.status()
        if found["capacity"] and found["cached_bytes"] > found["capacity"]:
            raise Broken(f"more than the capacity lies here: {found}")
        if concerns := self.operator("status")["concerns"]:
            raise Broken(f"a concern at the end: {concerns}")
        if code := self.centre.stop():
            raise Broken(f"the receiver stopped with {code}")
        self.judge()
        if not found["kept_files"]:
            checked = self.operator("restore", "--check", "--deep")
            if checked["found"]:
                raise Broken(f"restore --check: {checked}")
            self.burnt()
            self.centre.kill()
            self.centre.start()  # what was cut off leaves nothing lying about
            wait_until(self.is_copied, "all is copied", bound=40)
            if code := self.centre.stop():
                raise Broken(f"the receiver stopped with {code}")
            self.judge()

    def judge(self) -> None:
        ledger = self.ledger()
        freed = {edge.uuid: edge.freed for edge in self.edges}
        problems = ledger.settled(
            self.by_uuid(), freed, [self.edges[1].uuid], restored=self.is_restored
        )
        problems += ledger.strays()
        ledger.close()
        if problems:
            raise Broken("at the end: " + "\n".join(problems))
        for command in (("fsck",), ("fsck", "--storage", "--deep")):
            found = self.operator(*command)["found"]
            told = ("orphan", "foreign", "lacking", *(("resource",) if self.is_turned else ()))
            wrong = [each for each in found if each["kind"] not in told]
            if wrong:
                raise Broken(f"{' '.join(command)}: {wrong}")

    def is_copied(self) -> bool:
        found = self.status()
        over = found["capacity"] and found["cached_bytes"] > found["capacity"]
        waits = found["waiting_files"]
        if self.is_turned:  # what a restore gave up is known again, and its resource is nowhere
            waits -= found["unreadable_files"]
        return not (waits or int(found["behind"]) or found["problem"] or over)

    def ledger(self) -> StoredLedger:
        found = load(
            ReceiverConfig,
            file=self.centre.config,
            env_prefix=ENV_PREFIX,
            environ={},
            flags={},
        )
        return StoredLedger(found.value, self.centre.data, bare=self.is_turned)

    def by_uuid(self) -> dict[str, Workload]:
        return {edge.uuid: edge.files for edge in self.edges}

    def status(self) -> Any:
        return self.operator("storage", "status")

    def command(self, *arguments: str) -> list[str]:
        return [COMMAND, "--config", str(self.centre.config), *arguments]

    def operator(self, *arguments: str) -> Any:
        """In this process; what it finds wrong is in what it writes."""
        given = ["--config", str(self.centre.config), *arguments, "--json"]
        done = CliRunner().invoke(cli, given)
        try:
            return json.loads(done.stdout)
        except ValueError:
            raise Broken(f"{arguments}: {done.exit_code} {done.output} {done.exception}") from None


_BEGUN = time.monotonic()


def live(seed: int, given: argparse.Namespace, server: S3Server | None) -> bool:
    """One life; whether all of it held."""
    run = Path(tempfile.mkdtemp(prefix=f"tsferry-storage-{seed}-", dir=given.at))
    with children(run) as processes:
        life = Life(run, seed, processes, server)
        try:
            life.rage(given.steps)
            life.rest()
        except (Broken, AssertionError) as error:
            print(f"BROKEN, seed {seed}, kept in {run}:")
            traceback.print_exception(error)
            return False
        finally:
            (run / "told.txt").write_text("\n".join(life.told))
    files = sum(len(edge.files.files) for edge in life.edges)
    rounds = sum(edge.rounds for edge in life.edges)
    life.say(f"seed {seed} held: {files} files, {rounds} rounds")
    if not given.keep:
        shutil.rmtree(run)
    return True


def main() -> int:
    """Live, and tell."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--lives", type=int, default=1, help="with this seed and the next ones")
    parser.add_argument("--minutes", type=float, default=600.0, help="begin no life after so long")
    parser.add_argument("--steps", type=int, default=25, help="that happen in a life")
    parser.add_argument("--s3", action="store_true", help="SeaweedFS in place of a directory")
    parser.add_argument("--at", type=Path, default=None)
    parser.add_argument("--keep", action="store_true", help="keep what has held, too")
    given = parser.parse_args()
    end_on_signals()
    logging.disable(logging.WARNING)
    bad = []
    with ExitStack() as stack:
        server = None
        if given.s3:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=given.at)))
            server = stack.enter_context(s3_server(place / "s3"))
            os.environ.update(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET)
        for seed in range(given.seed, given.seed + given.lives):
            if time.monotonic() - _BEGUN > 60 * given.minutes:
                break
            if not live(seed, given, server):
                bad.append(seed)
    print(f"seeds that did not hold: {bad or 'none'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
