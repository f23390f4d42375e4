"""Moving over from the old sync tool, at both ends; and an edge whose tree was copied by rsync."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from common import crash
from common.console.cli import run
from common.crash import SimulatedCrash
from sender.cli.commands import cli
from tests.support.centre import Centre, centre
from tests.support.old_tool import OldReceiverTree, OldSenderTree, lay, tree_of
from tests.support.tsfile_bytes import build

_numbers = iter(range(1, 1_000))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Centre]:
    with centre(tmp_path_factory.mktemp("moving")) as made:
        made.url = made.start()  # type: ignore[attr-defined]
        yield made


class MovingSite:
    """An edge and an old receiver, of a storage group and an identity of their own."""

    def __init__(self, root: Path, running: Centre, capsys: pytest.CaptureFixture[str]) -> None:
        number = next(_numbers)
        self.uuid = f"{number:04x}" + "5e" * 14
        self.sg = f"root.m{number}"
        self.centre = running
        self.receiver = OldReceiverTree(root / "centre")
        self._capsys = capsys
        self.be_in(root)

    def be_in(self, root: Path) -> None:
        """Have the edge in another directory, with nothing in it."""
        home = root / "edge" / "data"
        self.sender = OldSenderTree(home / "data", home / "system")
        self.schema = self.sender.system / "schema"
        self.schema.mkdir(parents=True)
        for kind in ("sequence", "unsequence"):
            (self.sender.data / kind).mkdir(parents=True)
        self.config = root / "sender.toml"
        self.config.write_text(
            f'schema_dir = "{self.schema}"\ndata_dirs = ["{self.sender.data}"]\n'
            f'[[receiver]]\nname = "dc1"\nurl = "{self.centre.url}"\n'  # type: ignore[attr-defined]
            "[transfer]\nload_poll = 1\n"
        )

    def path(self, number: int, inner: int = 0) -> str:
        return f"sequence/{self.sg}/0/0/{1581324718762 + number}-{number}-{inner}-0.tsfile"

    def content(self, number: int) -> bytes:
        times = range(number * 100, number * 100 + 10)
        return build({f"{self.sg}.d1": {"s1": [(each, each) for each in times]}})

    def files(self, numbers: Iterable[int]) -> dict[str, bytes]:
        found = {self.path(number): self.content(number) for number in numbers}
        return found | {f"{path}.resource": b"r" for path in found}

    def here(self, *numbers: int) -> None:
        lay(self.sender.data, self.files(numbers))

    def there(self, *numbers: int) -> None:
        self.receiver.loaded(self.files(numbers))

    def listed(self, *numbers: int) -> None:
        self.sender.identity(self.uuid)
        self.sender.listed(map(self.path, numbers))

    def own(self, owner: str = "") -> None:
        self.receiver.owners({f"{self.sg}.d1": owner or f"192.168.130.14_{self.uuid}"})

    def adopt_there(self, *more: str) -> Any:
        return self.centre.call("adopt", str(self.receiver.root), "--commit", *more)

    def call(self, *arguments: str, code: int = 0) -> Any:
        given = ["--config", str(self.config), *arguments, "--json"]
        got = run(cli, "tsferry-sender", given)
        out = self._capsys.readouterr()
        assert got == code, out
        return json.loads(out.out) if out.out else out.err

    def said(self, *arguments: str) -> str:
        """What a command says to a person."""
        got = run(cli, "tsferry-sender", ["--config", str(self.config), *arguments])
        out = self._capsys.readouterr()
        assert got == 0, out
        return out.out

    def loaded(self) -> dict[str, str]:
        return self.centre.loaded(self.uuid)

    def expected(self, *numbers: int) -> dict[str, str]:
        return {
            self.path(number): hashlib.md5(self.content(number)).hexdigest() for number in numbers
        }


@pytest.fixture
def site(tmp_path: Path, running: Centre, capsys: pytest.CaptureFixture[str]) -> MovingSite:
    return MovingSite(tmp_path, running, capsys)


def test_both_ends_move_over_and_nothing_that_is_there_is_sent_again(site: MovingSite) -> None:
    site.here(1, 2, 3, 4)
    site.listed(1, 2, 3, 9)
    site.there(1, 2, 9, 8)
    site.receiver.loaded({site.path(3): site.content(3)[:-7]})
    site.own()
    before = tree_of(site.sender.data.parent), tree_of(site.receiver.home)
    odd = site.adopt_there()["odd"]
    assert [each["source"].rpartition("/")[2] for each in odd] == [Path(site.path(3)).name]
    dry = site.call("adopt")
    assert (before[0], before[1]) == (tree_of(site.sender.data.parent), tree_of(site.receiver.home))
    assert (dry["uuid"], dry["synced"], dry["there"], dry["committed"]) == (site.uuid, 4, 2, False)
    assert {each["file"]: each["reason"] for each in dry["to_send"]} == {
        site.path(3): "the old tool had sent it, and the receiver has it not",
        site.path(4): "new",
    }
    assert (dry["gone"], dry["only_there"]) == ([site.path(9)], [site.path(8)])
    done = site.call("adopt", "--commit")
    assert done == {**dry, "committed": True}
    after = tree_of(site.sender.data.parent)
    assert {name: after[name] for name in before[0]} == before[0]
    ahead = site.said("sync", "--dry-run").splitlines()
    assert "would send 2 files" in ahead[0]
    assert "tell the .resource alone of 2;" in ahead[0]
    sent = [each.split()[1] for each in ahead if each.startswith("  send ")]
    assert sent == [site.path(3), site.path(4)]
    report = site.call("sync")
    assert (report["sent"], report["already"]) == (2, 0)
    assert report["bytes"] == sum(len(site.content(number)) + 1 for number in (3, 4))
    assert site.loaded() == site.expected(1, 2, 3, 4, 8, 9)
    second = site.call("sync")
    assert (second["sent"], second["bytes"], second["retired"]) == (0, 0, 2)
    third = site.call("sync")
    assert (third["sent"], third["bytes"], third["tasks"]) == (0, 0, [])
    states = {
        each["path"]: each["state"]
        for each in site.centre.call("files", "--sender", site.uuid)["files"]
    }
    assert states == {
        **dict.fromkeys(site.expected(1, 2, 3, 4), "live"),
        **dict.fromkeys(site.expected(8, 9), "retired"),
    }


def test_what_the_old_centre_deleted_stays_deleted_and_both_ends_agree(site: MovingSite) -> None:
    gone = f"DELETION,{site.sg}.d1.*,{2**63 - 1},100,104\n".encode()
    site.here(1, 2, 3)
    site.there(1, 2)
    site.receiver.loaded({site.path(1) + ".mods": gone})
    site.listed(1, 2)
    site.own()
    site.adopt_there("--commit")
    site.call("adopt", "--commit")
    assert site.call("sync")["sent"] == 1
    for _ in range(2):
        again = site.call("sync")
        assert (again["sent"], again["tasks"]) == (0, [])
        assert [each["file"] for each in again["kept_deletions"]] == [site.path(1)]


def test_a_server_of_0_12_says_whose_files_they_are_by_whoever_asks(site: MovingSite) -> None:
    site.here(1, 2)
    site.listed(1, 2)
    site.there(1, 2)
    site.own(site.sg)
    assert site.adopt_there("--as", f"{site.sg}={site.uuid}")["committed"]
    assert site.call("adopt", "--commit")["there"] == 2
    assert site.call("sync")["bytes"] == 0


def test_where_the_centre_has_adopted_nothing_the_edge_waits(site: MovingSite) -> None:
    site.here(1)
    site.listed(1)
    assert site.call("adopt", "--commit", code=3)["committed"] is False
    assert not (site.schema / "sync" / "uuid.txt").exists()
    site.there(1)
    site.own()
    site.adopt_there()
    assert site.call("adopt", "--commit")["committed"]


def test_an_edge_that_has_deleted_all_that_it_had_sent_goes_on_too(site: MovingSite) -> None:
    site.here(2)
    site.listed(1)
    site.there(1)
    site.own()
    site.adopt_there()
    done = site.call("adopt", "--commit")
    assert (done["committed"], done["gone"]) == (True, [site.path(1)])
    assert site.call("sync")["sent"] == 1


def test_an_edge_whose_lists_are_lost_is_compared_by_content_and_goes_on(site: MovingSite) -> None:
    site.here(1, 2, 3)
    site.listed(1, 2)
    (site.sender.folder / "last_local_files.txt").unlink()
    site.sender.schema_position("12")
    site.there(1, 2)
    site.own()
    site.adopt_there()
    assert site.call("init")["old_tool"] == site.uuid
    done = site.call("adopt", "--commit")
    assert (done["uuid"], done["synced"], done["there"]) == (site.uuid, 0, 2)
    report = site.call("sync")
    assert (report["sent"], report["bytes"]) == (1, len(site.content(3)) + 1)
    assert site.loaded() == site.expected(1, 2, 3)


def test_what_lies_where_only_databases_before_0_12_have_it_is_not_taken_for_deleted(
    site: MovingSite,
) -> None:
    site.here(1)
    older = site.path(2).replace("/0/0/", "/0/")
    lay(site.sender.data, {older: site.content(2)})
    site.listed(1, 2)
    site.there(1, 2)
    site.own()
    site.adopt_there()
    done = site.call("adopt")
    assert (done["there"], done["gone"], done["away"]) == (1, [], [])
    (waiting,) = done["waiting"]
    assert waiting["file"] == older
    assert "0.12" in waiting["reason"]


def test_an_identity_that_was_never_used_gives_way_and_one_in_use_does_not(
    site: MovingSite,
) -> None:
    site.here(1)
    site.listed(1)
    site.there(1)
    site.own()
    site.adopt_there()
    mine = site.call("init")["uuid"]
    dry = site.call("adopt")
    assert dry["replaces"] == mine
    site.call("adopt", "--commit")
    assert (site.schema / "sync" / "uuid.txt").read_text().strip() == site.uuid
    assert site.call("sync")["bytes"] == 0
    lay(site.sender.system / "sync", {"uuid.txt": b"ab" * 16})
    assert "has sent to" in site.call("adopt", "--commit", code=2)


def test_a_folder_of_the_old_tool_that_has_the_name_of_ours_is_set_aside(
    site: MovingSite,
) -> None:
    site.sender.receiver = f"127.0.0.1_{site.centre.port}"
    site.here(1, 2)
    site.listed(1)
    site.there(1)
    site.own()
    site.adopt_there()
    old = tree_of(site.sender.folder)
    site.call("adopt", "--commit")
    assert tree_of(site.sender.folder.with_name(f"{site.sender.receiver}.old-tool")) == old
    assert site.call("adopt")["there"] == 1
    report = site.call("sync")
    assert (report["sent"], site.loaded()) == (1, site.expected(1, 2))


def test_a_death_at_any_step_at_the_edge_is_mended_by_saying_it_again(
    tmp_path: Path, site: MovingSite
) -> None:
    site.there(1, 9)
    site.own()
    site.adopt_there()
    passed: list[str] = []
    died, at = True, 0
    while died:
        at += 1
        site.be_in(tmp_path / str(at))
        site.sender.receiver = f"127.0.0.1_{site.centre.port}"
        site.here(1, 2)
        site.listed(1, 9)
        old = tree_of(site.sender.folder)
        passed = []

        def hook(name: str, passed: list[str] = passed, at: int = at) -> None:
            passed.append(name)
            if len(passed) == at:
                raise SimulatedCrash(name)

        died = False
        with crash.arm(hook):
            try:
                site.call("adopt", "--commit")
            except SimulatedCrash:
                died = True
        assert site.call("adopt", "--commit")["there"] == 1, passed
        listed = (site.sender.folder / "last_local_files.txt").read_text()
        assert sorted(listed.split()) == [site.path(1), site.path(9)], passed
        assert (site.schema / "sync" / "uuid.txt").read_text().strip() == site.uuid
        assert tree_of(site.sender.folder.with_name(f"{site.sender.receiver}.old-tool")) == old
    assert {"oldtool.marked", "oldtool.aside", "oldtool.listed", "oldtool.identified"} <= {*passed}
    assert (site.call("sync")["sent"], site.call("sync")["retired"]) == (1, 1)
    assert site.loaded() == site.expected(1, 2)


def test_an_edge_whose_tree_was_copied_sends_nothing_that_is_there(site: MovingSite) -> None:
    site.here(1, 2, 3)
    uuid = site.call("init")["uuid"]
    site.there(1, 2)
    site.receiver.loaded({f"sequence/{site.sg}/0/0/.{Path(site.path(3)).name}.tmp": b"half"})
    done = site.adopt_there("--as", uuid)
    assert {each["result"] for each in done["files"]} == {"loaded"}
    report = site.call("sync")
    assert (report["sent"], report["bytes"]) == (1, len(site.content(3)) + 1)
    site.uuid = uuid
    assert site.loaded() == site.expected(1, 2, 3)


def test_where_there_is_nothing_of_the_old_tool_that_is_said(site: MovingSite) -> None:
    assert "tsferry-sender init" in site.call("adopt", code=2)
    site.listed(1)
    lay(site.sender.system / "sync", {"uuid.txt": b"half"})
    assert "is damaged" in site.call("adopt", code=1)
    assert "expected 32" in site.call("adopt", "--uuid", "x", code=2)
    assert site.call("adopt", "--uuid", site.uuid, code=3)["uuid"] == site.uuid


def test_one_directory_of_another_sender_keeps_all_of_them_as_they_are(
    site: MovingSite, tmp_path: Path
) -> None:
    other = tmp_path / "disk2"
    (other / "sequence").mkdir(parents=True)
    (other / ".tsferry").write_text(f"tsferry data directory 1\nsender {'9' * 32}\n")
    text = site.config.read_text()
    site.config.write_text(
        text.replace("data_dirs = [", f'data_dirs = ["{other}", ').replace(
            f'["{other}", "{site.sender.data}"]', f'["{site.sender.data}", "{other}"]'
        )
    )
    site.here(1)
    site.listed(1)
    site.there(1)
    site.own()
    site.adopt_there()
    before = tree_of(site.sender.data)
    assert "belongs to the sender" in str(site.call("adopt", "--commit", code=2))
    assert tree_of(site.sender.data) == before
