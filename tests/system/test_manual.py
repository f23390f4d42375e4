"""The manual's pages, done as they stand there: each command is run, or says why not."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.support.architecture import ROOT
from tests.support.manual_machines import Machine, Machines
from tests.support.manual_text import Edit, steps_of
from tests.support.old_tool import OldReceiverTree, lay
from tests.support.page_commands import commands_of, differing
from tests.support.procs import children, wait_until
from tests.support.prometheus import needs_prometheus, needs_promtool
from tests.support.tsfile_bytes import build

pytestmark = pytest.mark.slow
MANUAL = ROOT / "docs" / "manual"
SERVICES = {"centre": "tsferry-receiver", "edge": "tsferry-sender"}
DATA = "/var/lib/iotdb/data/data"


def close_file(machine: Machine, number: int, group: str = "root.plant7") -> None:
    """The database of an edge closes a file."""
    name = f"{1581324718762 + number}-{number}-0-0.tsfile"
    path = machine.path(DATA) / f"sequence/{group}/0/0" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name(path.name + ".resource").write_bytes(b"resource")
    made = path.with_name("made")
    points = [(number * 1000 + each, each) for each in range(10)]
    made.write_bytes(build({f"{group}.pump1": {"s1": points}}))
    # It has rested: where that decides (closed_by = "tail") no round waits for it.
    os.utime(made, (time.time() - 60,) * 2)
    made.rename(path)


def contents(machine: Machine) -> Counter[str]:
    """MD5 of each TsFile of an edge."""
    return Counter(
        hashlib.md5(each.read_bytes()).hexdigest()
        for each in machine.path(DATA).glob("*/**/*.tsfile")
    )


def seen(machine: Machine) -> Counter[str]:
    """MD5 of each file that readers of a centre get, of the bytes that lie there."""
    code, said = machine.run("tsferry-receiver files --json")
    assert code == 0, said
    data = machine.path("/var/lib/tsferry/data")
    return Counter(
        hashlib.md5((data / each["physical"]).read_bytes()).hexdigest()
        for each in json.loads(said)["files"]
        if each["state"] in ("live", "retired")
    )


def sent(machine: Machine) -> tuple[int, int]:
    """Files and bytes of all tasks that the daemon of an edge had since it was started."""
    found = re.findall(
        r"a task of (\d+) files \((\d+) bytes\)", machine.services["tsferry-sender"].text()
    )
    return sum(int(files) for files, _ in found), sum(int(size) for _, size in found)


def code_is_0(code: int, said: str) -> None:
    assert code == 0, said


class Plant:
    """What `first_steps` makes, to be put back for each page."""

    def __init__(self, machines: Machines, kept: Path) -> None:
        self.machines, self._kept = machines, kept
        edge = machines["edge"]
        for number in (1, 2, 3):
            close_file(edge, number)
        machines.happens["the database closes a file"] = lambda: close_file(edge, 4)
        machines.follow(steps_of(MANUAL / "first_steps.md"))
        machines.stop()
        self._names = dict(machines.names)
        shutil.copytree(machines.root, kept, symlinks=True)

    def again(self) -> Machines:
        """As it was behind the first steps, with all services up."""
        self.machines.stop()
        shutil.rmtree(self.machines.root)
        shutil.copytree(self._kept, self.machines.root, symlinks=True)
        self.machines.happens.clear()
        self.machines.names = dict(self._names)
        for name, service in SERVICES.items():
            self.machines[name].run(f"systemctl start {service}")
        return self.machines


@pytest.fixture(scope="module")
def plant(tmp_path_factory):
    root = tmp_path_factory.mktemp("manual")
    with children(root) as started:
        yield Plant(Machines(root / "machines", started), root / "kept")


@pytest.fixture
def machines(plant):
    return plant.again()


def test_the_first_steps_lead_to_what_is_at_the_edge(machines):
    assert seen(machines["centre"]) == contents(machines["edge"])
    assert len(seen(machines["centre"])) == 5


def test_a_lost_centre_comes_back_by_the_page_alone(machines):
    centre, edge = machines["centre"], machines["edge"]

    def another() -> None:
        close_file(edge, 6)
        wait_until(lambda: seen(centre) == contents(edge), "the sixth file")
        edge.services["tsferry-sender"].output.write_bytes(b"")

    machines.happens |= {
        "cron backs up": lambda: [code_is_0(*each) for each in centre.cron("tsferry-backup")],
        "another file is loaded": another,
        "the machine of the centre is lost": lambda: (centre.lose(), shutil.rmtree(centre.root)),
    }
    machines.follow(steps_of(MANUAL / "backup.md"))
    new = machines["new"]
    assert seen(new) == contents(edge)
    assert sent(edge)[0] == 1, "what the backup had did not travel again"
    close_file(edge, 7)
    wait_until(lambda: seen(new) == contents(edge), "the edge goes on by itself")


@pytest.mark.long
def test_a_box_is_replaced_by_the_page_alone(machines):
    centre, edge = machines["centre"], machines["edge"]
    box2, box3, box4 = (machines[each] for each in ("box2", "box3", "box4"))
    before = contents(edge)

    def lose_the_first() -> None:
        edge.lose()
        shutil.copytree(edge.path(DATA), box2.path(DATA))
        shutil.rmtree(edge.root)
        for each in box2.path(DATA).rglob("*-2-0-0.tsfile*"):
            each.unlink()

    def lose_the_second() -> None:
        assert seen(centre) == before, "what the box lacks is there, and nothing twice"
        close_file(box2, 6)
        wait_until(lambda: contents(box2) <= seen(centre), "the new box goes on by itself")
        assert sent(box2)[0] == 1
        before.update(contents(box2) - before)
        box2.lose()
        shutil.copytree(box2.path(DATA), box3.path(DATA))
        shutil.rmtree(box2.root)

    def clone() -> None:
        wait_until(lambda: seen(centre) == before, "each content is seen once")
        shutil.copytree(box3.root, box4.root, dirs_exist_ok=True)
        box4.make_at_home([box3])

    machines.happens |= {
        "the box of plant-7 is lost, and box2 has some of its files": lose_the_first,
        "box2 is lost, and box3 has its files": lose_the_second,
        "box3 is cloned, and the clone is box4": clone,
    }
    machines.follow(steps_of(MANUAL / "edges.md"))
    assert seen(centre) == before, "what a removed sender brought stays"


@pytest.mark.long
def test_a_centre_has_another_name_and_goes_to_another_machine(machines):
    centre, edge = machines["centre"], machines["edge"]

    def load_another() -> None:
        close_file(edge, 6)
        wait_until(lambda: seen(centre) == contents(edge), "the sixth file")

    machines.happens["a file is loaded meanwhile"] = load_another
    machines.follow(steps_of(MANUAL / "moving.md"))
    new = machines["new"]
    assert seen(new) == contents(edge)
    close_file(edge, 7)
    wait_until(lambda: seen(new) == contents(edge), "the edge goes on by itself")
    assert sent(edge)[0] == 2, "nothing travels twice"


def test_tokens_and_certificates_are_exchanged_while_files_are_sent(machines):
    machines.follow(steps_of(MANUAL / "tokens_and_certificates.md"))
    centre, edge = machines["centre"], machines["edge"]
    close_file(edge, 6)
    wait_until(lambda: seen(centre) == contents(edge), "the edge goes on by itself")


def test_cron_sends_in_place_of_the_daemon(machines):
    edge = machines["edge"]
    closed: Counter[str] = Counter()

    def call() -> None:
        close_file(edge, 6)
        closed.update(contents(edge))
        assert [code for code, _ in edge.cron("tsferry")] == [0, 0]

    machines.happens["a file is closed, and cron calls"] = call
    machines.follow(steps_of(MANUAL / "cron.md"))
    # Where this machine has less than 20 GiB free, `free` has removed them from the edge.
    assert seen(machines["centre"]) == closed
    assert contents(edge) <= closed


def test_one_configuration_serves_many_edges(machines):
    centre = machines["centre"]
    for name in ("plant8", "plant9"):
        close_file(machines[name], 1, group=f"root.{name}")
    machines.follow(steps_of(MANUAL / "rollout.md"))
    configurations = {
        # Paths and the port of the centre are each machine's here.
        machines[name].path("/etc/tsferry/sender.toml").read_text().replace(name, "")
        for name in ("plant8", "plant9")
    }
    assert len(configurations) == 1
    assert contents(machines["plant8"]) + contents(machines["plant9"]) <= seen(centre)


@pytest.mark.long
@needs_promtool
@needs_prometheus
def test_an_edge_that_falls_silent_is_seen(machines):
    centre = machines["centre"]

    def check() -> None:
        assert centre.cron("tsferry-check") == [(0, "")]

    machines.happens["cron checks, and mails nothing"] = check
    machines.follow(steps_of(MANUAL / "alerts.md"))


def test_the_version_before_comes_back_by_the_page_alone(machines):
    centre, edge = machines["centre"], machines["edge"]

    def load_another() -> None:
        close_file(edge, 6)
        wait_until(lambda: seen(centre) == contents(edge), "the sixth file")

    machines.happens["a file is loaded by the new version"] = load_another
    machines.follow(steps_of(MANUAL / "upgrade.md"))
    assert seen(centre) == contents(edge)
    close_file(edge, 7)
    wait_until(lambda: seen(centre) == contents(edge), "the edge goes on by itself")


RUN_ELSEWHERE = {
    "tsferry-receiver --config node.toml": "system/receiver/follower/test_following_nodes.py",
    "tsferry-receiver --config receiver.toml restore": "system/test_manual.py",
    "tsferry-receiver --config receiver.toml serve": "system/test_manual.py",
    "tsferry-receiver --url": "unit/receiver/web/test_operating_elsewhere.py",
    "tsferry-receiver deletes allow": "system/sender/test_held_records.py",
    "tsferry-receiver deletes drop": "system/sender/test_held_records.py",
    "tsferry-receiver lost acknowledge": "unit/receiver/cli/test_commands.py",
    "tsferry-receiver nodes": "unit/receiver/cli/test_commands.py",
    "tsferry-receiver sql": "unit/receiver/cli/shell/test_sql.py",
    "tsferry-receiver tables": "unit/receiver/cli/test_commands.py",
    "tsferry-sender adopt": "system/test_moving_over.py",
    "tsferry-verify": "system/receiver/test_verify_on_spark.py",
}
"""Commands of other pages that need more than a centre and an edge: how they begin, and who has
what they need."""
RUN_HERE = (
    "tsferry-receiver --config receiver.toml restore --check",
    "tsferry-receiver nodes list",
    'tsferry-receiver sql "',
)


_TROUBLE = (
    "sequence/root.press_line/0/2956/1787797800000-7-0-0.tsfile: conflict: device "
    "root.wind_north.turbine_02 belongs to another sender"
)
NOT_LAID_OUT = {
    "in trouble      1 file": ("unit/sender/cli/test_status_codes.py", "in trouble"),
    _TROUBLE: ("unit/sender/cli/test_status_codes.py", "belongs to another"),
    "webhook: taken: https://alerts.example.org/...: HTTP 204": (
        "unit/common/hooks/test_webhook.py",
        "HTTP ",
    ),
}
"""Lines that pages show of what is not laid out here: who has it, and the words it looks for."""
COMPARED_ELSEWHERE = (
    "tsferry-receiver hooks list",
    "tsferry-receiver status --check",
    "tsferry-receiver storage status",
    "tsferry-receiver tree",
)
"""Commands whose output on a page is of other situations: `unit/test_shown_output.py` has them."""


def is_run_here(typed: str) -> bool:
    return typed.startswith(RUN_HERE) or not typed.startswith(tuple(RUN_ELSEWHERE))


def lay_out(machines: Machines) -> None:
    """What the other pages speak of is there: files, an old receiver, a hook, a tag."""
    centre = machines["centre"]
    old, disk = (OldReceiverTree(centre.path(each)) for each in ("/opt/iotdb", "/disk2/iotdb"))
    uuid = machines.names["6d7fd098c718833100b01c7e773c1546"]
    for number, place in enumerate((old.root / "data", disk.home, machines.root / "mnt/old/data")):
        name = f"sequence/root.old{number}/0/0/{1581324718762 + number}-{number}-0-0.tsfile"
        lay(place, {name: build({f"root.old{number}.d1": {"s1": [(1, 1)]}})})
    old.owners({f"root.old{number}.d1": f"192.168.1.2_{uuid}" for number in range(2)})
    for number, each in enumerate(("a.tsfile", "b.tsfile")):
        device = f"root.turbine.d{number}"
        lay(centre.path("/home/me"), {each: build({device: {"s1": [(1, 1)]}})})
        machines.names[each] = str(centre.path(f"/home/me/{each}"))
    offered = f"sequence/root.offered/0/0/{1581324718762}-1-0-0.tsfile"
    lay(
        centre.path(f"/srv/offered/{uuid}"),
        {offered: build({"root.offered.d1": {"s1": [(1, 1)]}})},
    )
    machines.names |= {
        "/opt/iotdb": str(old.home),
        "/disk2/iotdb": str(disk.home),
        "<sender>": uuid,
        "receiver.toml": str(centre.path("/etc/tsferry/receiver.toml")),
    }
    hook = Edit(
        0, "centre", "/etc/tsferry/receiver.toml", "toml", '[hooks]\ncommand = ["/bin/true"]\n'
    )
    machines.follow([hook])
    centre.run("systemctl restart tsferry-receiver")
    site = "create timeseries root.turbine.d1.s1 with datatype=INT64, encoding=RLE tags(site=north)"
    code_is_0(*centre.run(f"tsferry-receiver sql '{site}'"))
    edge = machines["edge"]
    wait_until(lambda: "daemon runs" in edge.run("tsferry-sender status")[1], "the daemon")


def test_commands_of_pages_outside_of_the_manual_do_what_they_are_for(machines):
    lay_out(machines)
    centre, edge = machines["centre"], machines["edge"]
    pages = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    commands = [each for page in pages for each in commands_of(page)]
    failed, ran = [], 0
    for command in filter(lambda each: is_run_here(each.typed), commands):
        machine = edge if command.typed.startswith("tsferry-sender") else centre
        code, said = machine.run(machines.here(command.typed, machine))
        ran += 1
        if code:
            failed.append(f"{command}: ends with {code}: {said}")
        differs = set(differing(command.shown, said)) - NOT_LAID_OUT.keys()
        if differs and not command.typed.startswith(COMPARED_ELSEWHERE):
            failed.append(f"{command}: {differs} of\n{said}")
    assert not failed, "\n".join(failed)
    assert ran > 35
    left = [each.typed for each in commands if not is_run_here(each.typed)]
    for begin, test in RUN_ELSEWHERE.items():
        assert any(each.startswith(begin) for each in left), f"no page has {begin} any more"
        assert (ROOT / "tests" / test).exists()
    on_pages = {line for each in commands for line in each.shown}
    for line, (test, words) in NOT_LAID_OUT.items():
        assert line in on_pages, f"no page shows {line} any more"
        assert words in line
        assert words in (ROOT / "tests" / test).read_text(), test
