"""Each command on the manual's pages is run by a test, or says why not; and a page can be wrong."""

from __future__ import annotations

import pytest

from tests.support.architecture import ROOT
from tests.support.manual_machines import Machines
from tests.support.manual_text import Command, Edit, Event, NotRun, steps_of
from tests.support.procs import children

PAGES = sorted((ROOT / "docs" / "manual").glob("*.md"))
FOLLOWED = (ROOT / "tests" / "system" / "test_manual.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_block_of_a_page_is_run_or_says_why_not(page):
    steps = steps_of(page)  # raises where one is neither
    if any(not isinstance(each, NotRun) for each in steps):
        assert f'MANUAL / "{page.name}"' in FOLLOWED
    assert all(each.reason for each in steps if isinstance(each, NotRun))


@pytest.fixture
def page(tmp_path):
    def write(text: str):
        file = tmp_path / "page.md"
        file.write_text(text)
        return file

    return write


def test_a_page_is_cut_into_what_somebody_does(page):
    steps = steps_of(
        page(
            "# A\n<!-- happens: it rains -->\n\n"
            "<!-- exit: 3 -->\n```console\nedge$ a \\\n    b\nsaid\ncentre# c\n```\n"
            "<!-- in: edge /etc/x.toml -->\n```toml\n[a]\nb = 1\n```\n"
            "<!-- not run: no reason to -->\n```sh\nreboot\n```\n"
        )
    )
    assert steps == [
        Event(2, "it rains"),
        Command(6, "edge", "a b", ("said",), 3),
        Command(9, "centre", "c", (), 3),
        Edit(12, "edge", "/etc/x.toml", "toml", "[a]\nb = 1\n"),
        NotRun(17, "no reason to", "reboot\n"),
    ]


@pytest.mark.parametrize(
    "text",
    ["```sh\nreboot\n```\n", "<!-- exit: 3 -->\ntext\n", "```console\nreboot\n```\n"],
    ids=["not run", "a comment alone", "no prompt"],
)
def test_what_no_test_would_run_is_an_error(page, text):
    with pytest.raises(ValueError, match="page"):
        steps_of(page(text))


@pytest.fixture
def machines(tmp_path):
    with children(tmp_path) as started:
        yield Machines(tmp_path / "machines", started)


def follow(machines, page, block: str) -> None:
    machines.follow(steps_of(page(f"```console\n{block}```\n")))


def test_what_is_shown_has_to_be_said(machines, page):
    echo = "edge$ echo 3 files, 12.5 KiB, at 2026-11-30\n"
    follow(machines, page, f"{echo}3 files, 1.5 MiB, at 2025-01-01\n")
    for shown in ("4 files...", "3 files, 12.5 KiB", "nothing"):
        with pytest.raises(AssertionError, match="does not say"):
            follow(machines, page, f"{echo}{shown}\n")
    with pytest.raises(AssertionError, match="ends with 1, not 0"):
        follow(machines, page, "edge$ false\n")


def test_an_id_of_the_page_stands_for_the_one_that_is_said_first(machines, page):
    real, said = "0f" * 16, "6d7fd098c718833100b01c7e773c1546"
    machines["edge"].path("/etc/tsferry/uuid").write_text(f"this is {real}\n")
    follow(
        machines,
        page,
        f"edge$ cat /etc/tsferry/uuid\nthis is {said}\nedge$ echo {said} >/etc/tsferry/it\n",
    )
    assert machines["edge"].path("/etc/tsferry/it").read_text() == f"{real}\n"


def test_machines_have_disks_of_their_own_and_share_one(machines, page):
    follow(
        machines,
        page,
        "centre$ echo a >/etc/tsferry/x\nedge$ scp centre:/etc/tsferry/x /etc/tsferry/y\n"
        "edge$ cp /etc/tsferry/y /mnt/z\ncentre$ cat /mnt/z\na\n",
    )
    assert not machines["edge"].path("/etc/tsferry/x").exists()
