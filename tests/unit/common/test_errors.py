"""The error tree: every class has its own name, branch and codes."""

from __future__ import annotations

import importlib
import pickle
import pkgutil

import pytest

import common
from common import errors
from common.errors import Integrity, Permanent, Transient, TsferryError, by_slug


def every_class(root=TsferryError):
    yield root
    for child in root.__subclasses__():
        yield from every_class(child)


for _package in ("common", "sender", "receiver"):
    # Classes of other modules belong to the tree as well; those without their extras are left out.
    for _module in pkgutil.walk_packages(
        importlib.import_module(_package).__path__, f"{_package}."
    ):
        if _module.name.endswith(("errors", "exceptions")):
            importlib.import_module(_module.name)

CLASSES = list(dict.fromkeys(every_class()))  # a class with two bases is met twice
OWN = [each for each in CLASSES if "slug" in vars(each)]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_class_is_in_one_branch_and_has_codes_that_exist(kind):
    branches = [each for each in (Permanent, Transient, Integrity) if issubclass(kind, each)]
    assert len(branches) == (0 if kind is TsferryError else 1)
    assert kind.exit_code in {value for name, value in vars(errors).items() if name[:5] == "EXIT_"}
    assert 400 <= kind.http_status <= 599
    assert kind.retry is issubclass(kind, Transient)
    assert kind.__doc__


def test_every_slug_is_of_one_class():
    slugs = [each.slug for each in OWN]
    assert len(slugs) == len(set(slugs))
    assert all(slug.replace("-", "").isalpha() and slug.islower() for slug in slugs)


@pytest.mark.parametrize("kind", OWN, ids=lambda kind: kind.__name__)
def test_a_slug_finds_its_class(kind):
    assert by_slug(kind.slug) is kind


def test_a_class_without_a_slug_of_its_own_does_not_take_its_parents():
    class Nameless(errors.BusyError):
        """Goes by the name of its parent."""

    assert Nameless.slug == "busy"
    assert by_slug("busy") is errors.BusyError


@pytest.mark.parametrize("slug", ["", "about:blank", "nonsense", "BUSY", "__class__"])
def test_an_unknown_slug_is_the_root(slug):
    assert by_slug(slug) is TsferryError


def test_all_names_are_exported():
    for name, value in vars(errors).items():
        public = isinstance(value, type) and issubclass(value, TsferryError)
        if public or name.startswith("EXIT_"):
            assert name in errors.__all__


def test_an_error_survives_a_trip_between_processes():
    error = errors.OffsetError("at 5", retry_after=2.5, extra={"offset": 5})
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is errors.OffsetError
    assert (str(again), again.message, again.retry_after, again.extra) == (
        "at 5", "at 5", 2.5, {"offset": 5},
    )  # fmt: skip


def test_errors_do_not_share_their_extras():
    one, two = errors.BusyError("a"), errors.BusyError("b")
    one.extra["device"] = "x"
    assert two.extra == {}


def test_the_package_has_a_version():
    assert common.__version__.count(".") == 2
