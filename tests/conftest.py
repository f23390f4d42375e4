"""What every test gets, and which tests a run has (see `tests.support.tiers`)."""

from __future__ import annotations

import functools
import gc
import logging
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support import tiers
from tests.support.costs import Costs
from tests.support.etcd import own_etcd, shared_etcd
from tests.support.heard_timeouts import pytest_runtest_call

__all__ = ["own_etcd", "pytest_runtest_call", "shared_etcd"]

COMPILING = ("tests/unit/receiver/points/", "tests/unit/receiver/writing/")
WHOLE = ("system", "fault")
"""Directories whose tests start programs or break file systems: none is for the quick tier."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tsferry")
    group.addoption("--tier", choices=tiers.TIERS, default="default", help="how much is tested")
    group.addoption(
        "--servers", type=Path, help="a directory of scripts/live: test with its databases too"
    )
    group.addoption(
        "--screenshots", action="store_true", help="make the pictures of docs/page.md anew"
    )
    group.addoption(
        "--seed", type=int, default=1, help="which places of a sweep, which lives are tried"
    )
    group.addoption(
        "--costs", metavar="FILE", help="write there what each test costs (tests/support/costs.py)"
    )


def pytest_configure(config: pytest.Config) -> None:
    tier, seed = config.getoption("tier"), config.getoption("seed")
    tiers.choose(tier, seed)
    # How long an example takes says how busy the machine is.
    common = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
    if tier != "long":
        common["max_examples"] = tiers.examples(settings.default.max_examples)
    settings.register_profile("tsferry", derandomize=tier != "long", print_blob=True, **common)
    settings.load_profile("tsferry")
    if memory := tiers.memory():
        os.environ["TMPDIR"] = tempfile.tempdir = str(memory)  # for the programs too
    # A shell that starts them in the background has Ctrl-C ignored by them and all they start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # What cuts a run off from outside (a time limit, a terminal that is closed) has it clean up.
    for each in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(each) is signal.SIG_DFL:
            signal.signal(each, signal.default_int_handler)
            os.register_at_fork(
                after_in_child=functools.partial(signal.signal, each, signal.SIG_DFL)
            )
    if file := config.getoption("costs"):
        config.pluginmanager.register(Costs(Path(file).absolute()))


def pytest_report_header(config: pytest.Config) -> str:
    return (
        f"tier {config.getoption('tier')}, seed {config.getoption('seed')},"
        f" files in {tempfile.gettempdir()}"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    whole = config.getoption("tier") == "quick" and collection_path.name in WHOLE
    whole = whole or (collection_path.name == "live" and not config.getoption("servers"))
    return True if whole and collection_path.parent == Path(__file__).parent else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What was imported and collected stays to the end: no garbage is looked for in it.

    That, and looking for some after every 700 objects, was a tenth of all the time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tier = config.getoption("tier")
    left_out = {"quick": {"slow", "spark", "long"}, "default": {"long"}, "long": set()}[tier]
    there = [each for each in items if not left_out & {mark.name for mark in each.iter_markers()}]
    there = _few_of_each(there)
    if len(there) < len(items):
        stay = set(there)
        config.hook.pytest_deselected(items=[each for each in items if each not in stay])
        items[:] = there
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    """When it is its turn; what has the same number stays in its order.

    A worker takes from the end of the other's list: so the begin stays with one, and one JVM. The
    tests of the kernels come before, which compile them: else each process of Spark does so.
    """
    if item.nodeid.startswith(COMPILING):
        return 0
    if item.get_closest_marker("spark") is None:
        return 3
    return 2 if "test_on_a_cluster.py" in item.nodeid else 1


def _few_of_each(items: list[pytest.Item]) -> list[pytest.Item]:
    """What the mark `few` leaves of the cases of each test, in their order."""
    cases: dict[str, list[pytest.Item]] = {}
    for each in items:
        if each.get_closest_marker("few"):
            cases.setdefault(each.nodeid.partition("[")[0], []).append(each)
    gone: set[pytest.Item] = set()
    for test, of_it in cases.items():
        mark = of_it[0].get_closest_marker("few")
        assert mark is not None
        always = mark.kwargs.get("always", "")
        certain = [bool(always) and always in each.nodeid.removeprefix(test) for each in of_it]
        stay = tiers.few(len(of_it), *mark.args, test=test, certain=certain)
        gone |= {each for number, each in enumerate(of_it) if number not in stay}
    return [each for each in items if each not in gone]


@pytest.fixture(autouse=True)
def _no_log_left_behind() -> Iterator[None]:
    """A command that ran in this process has set up its log, on a stream of the test."""
    root = logging.getLogger()
    level, before = root.level, root.handlers[:]
    yield
    for each in root.handlers[:]:
        if each not in before and each.__class__.__module__.startswith(("logging", "common.")):
            root.removeHandler(each)
            each.close()
    root.setLevel(level)
