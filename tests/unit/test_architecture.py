"""The rules of the source: one door to the disk, imports that run one way, and manners."""

from __future__ import annotations

import textwrap

import pytest

from tests.support import architecture
from tests.support.architecture import Module


def broken(rule):
    return [said for module in architecture.modules() for said in rule(module)]


def test_the_source_is_found():
    names = {module.name for module in architecture.modules()}
    assert {"common", "common.durable", "sender", "receiver"} <= names


def test_every_change_of_the_disk_goes_through_the_one_door():
    assert broken(architecture.raw_disk_calls) == []


def test_imports_run_one_way_and_bring_no_heavy_package_where_it_has_no_place():
    assert broken(architecture.wrong_imports) == []


def test_no_error_is_swallowed_unseen():
    assert broken(architecture.swallowed_errors) == []


def test_only_commands_print():
    assert broken(architecture.printing) == []


def test_every_module_says_what_it_is():
    assert broken(architecture.undocumented) == []


def test_no_regular_expression_is_read_wrong_by_an_old_python():
    assert broken(architecture.possessive_groups) == []


def test_no_program_of_ours_imports_what_lies_in_the_working_directory():
    assert broken(architecture.foreign_modules) == []


# -- each rule can fail --------------------------------------------------------------------------


def judge(rule, text, name="sender.module"):
    return rule(Module.of(name, textwrap.dedent(text)))


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.rename('a', 'b')",
        "import os\nos.replace('a', 'b')",
        "import os\nos.link('a', 'b')",
        "import os\nos.unlink('a')",
        "import os\nos.remove('a')",
        "import os\nos.mkdir('a')",
        "import os\nos.makedirs('a')",
        "import os\nos.fsync(1)",
        "import os\nos.fdatasync(1)",
        "import os\nos.truncate('a', 1)",
        "import os\nos.write(1, b'')",
        "import os\nos.pwrite(1, b'', 0)",
        "import os as system\nsystem.rename('a', 'b')",
        "from os import rename\nrename('a', 'b')",
        "from os import rename as move\nmove('a', 'b')",
        "import os\nmove = os.rename",
        "import os\ndef f():\n    return [os.unlink(x) for x in y]",
        "import os\nos.open('a', os.O_WRONLY)",
        "import os\nos.open('a', os.O_RDWR)",
        "import os\nos.open('a', os.O_RDONLY | os.O_CREAT)",
        "import os\nos.open('a', flags)",
        "import os\nos.open('a', 1)",
        "import os\nos.open('a', flags=1)",
        "from os import O_WRONLY, open\nopen('a', O_WRONLY)",
        "open('a', 'w')",
        "open('a', 'ab')",
        "open('a', 'r+')",
        "open('a', mode='x')",
        "open('a', mode)",
        "import io\nio.open('a', 'w')",
        "import gzip\ngzip.open('a', 'wb')",
        "import zipfile\nzipfile.ZipFile('a', 'w')",
        "from pathlib import Path\nPath('a').open('w')",
        "path.open(mode='wb')",
        "path.write_text('x')",
        "path.write_bytes(b'x')",
        "path.touch()",
        "path.mkdir(parents=True)",
        "path.rmdir()",
        "path.unlink()",
        "path.unlink(missing_ok=True)",
        "path.rename(other)",
        "path.replace(other)",
        "path.symlink_to(other)",
        "path.hardlink_to(other)",
        "import shutil\nshutil.copy('a', 'b')",
        "import shutil\nshutil.rmtree('a')",
        "from shutil import move\nmove('a', 'b')",
        "import tempfile\ntempfile.mkstemp()",
        "from tempfile import NamedTemporaryFile\nNamedTemporaryFile()",
    ],
)
def test_a_raw_change_of_the_disk_is_seen(text):
    assert judge(architecture.raw_disk_calls, text)
    assert judge(architecture.raw_disk_calls, text, "common.durable.open_files") == []


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.open('a', os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)",
        "import os\nos.pread(1, 2, 3), os.fstat(1), os.close(1), os.listdir('a')",
        "open('a')",
        "open('a', 'rb')",
        "path.open()",
        "path.open('rb')",
        "path.read_text()",
        "Engine.open(directory)",
        "SyncLog.open(tree, 'sync.log')",
        "SyncLog.open(tree, rel)",
        "tree.unlink(rel)",
        "tree.rename('a', 'b', replace=False)",
        "tree.link('a', 'b')",
        "'a'.replace('b', 'c')",
        "import dataclasses\ndataclasses.replace(value, a=1)",
        "moment.replace(tzinfo=None)",
        "import shutil\nshutil.get_terminal_size()",
        "stream.write(b'x')",
        "file.truncate(5)",
        "self._idle.touch()",
    ],
)
def test_reading_and_the_door_itself_are_no_raw_change(text):
    assert judge(architecture.raw_disk_calls, text) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("common.names", "import sender"),
        ("common.names", "from sender.select.scan import scan"),
        ("common.names", "from receiver import node"),
        ("common.names", "from .. import sender"),
        ("common.names", "import flask"),
        ("common.names", "import numpy as np"),
        ("common.names", "def f():\n    import pyarrow.parquet"),
        ("common.names", "import importlib\nimportlib.import_module('pyspark')"),
        ("common.names", "import tsfile"),
        ("sender.cli", "import waitress"),
        ("sender.cli", "from receiver.config import ReceiverConfig"),
        ("receiver.node", "import sender"),
        ("receiver.node", "from receiver.web import create_app"),
        ("receiver.node", "import flask"),
        ("receiver.metadata.engine", "from receiver.load import loader"),
        ("receiver.metadata.engine", "from receiver import node"),
        ("receiver.metadata.engine", "from receiver.config import ReceiverConfig"),
        ("receiver.metadata.engine", "from ..transfer import views"),
        ("receiver.metadata.engine", "from . import records"),
        ("receiver.load.loader", "from receiver.transfer import views"),
        ("receiver.transfer.task", "from receiver.web.app import x"),
        ("receiver.transfer.task", "from receiver.cli import x"),
        ("receiver.transfer.task", "from receiver.operator import views"),
        ("receiver.operator.stored.files", "from receiver.node import Node"),
        ("receiver.operator.stored.files", "from receiver.web.call import Call"),
        ("receiver.operator.client", "from receiver.cli import x"),
        ("receiver.load.loader", "from receiver.operator import wire"),
        ("receiver.web.app", "from receiver.cli import x"),
        ("receiver.web.app", "import pyspark"),
        ("receiver.spark.verify.job", "import flask"),
        ("receiver.points.reader", "import pyspark"),
        ("receiver.points.reader", "from receiver.spark import job"),
        ("receiver.load.loader", "from receiver.points import TsFileReader"),
        ("receiver.spark.verify.job", "from receiver.node import Node"),
        ("receiver.spark.verify.delivery", "from receiver.cli import session"),
        ("receiver.spark.verify.delivery", "from receiver.web.app import x"),
        ("receiver.spark.verify.delivery", "from receiver.operator.stored.files import x"),
    ],
)
def test_an_import_against_the_arrows_is_seen(name, text):
    assert judge(architecture.wrong_imports, text, name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("common.names", "import os, re\nimport msgspec"),
        ("common.wire", "if TYPE_CHECKING:\n    from _typeshed import ReadableBuffer"),
        ("sender.send.calls", "import requests\nfrom common import wire"),
        ("receiver.load.loader", "from receiver.metadata.engine import Engine"),
        ("receiver.web.app", "import flask\nfrom receiver.node import Node"),
        ("receiver.web.handlers.operating", "from receiver.operator import wire"),
        ("receiver.node", "from receiver.operator.status import status"),
        (
            "receiver.operator.stored.files",
            "from receiver.transfer.said_lists.listing import page_limit",
        ),
        ("receiver.spark.verify.delivery", "from receiver.operator.client import x"),
        ("receiver.cli.box_commands.serve", "from receiver.web import create_app"),
        (
            "receiver.spark.verify.job",
            "import pyspark\nfrom receiver.metadata.engine import Engine",
        ),
    ],
)
def test_an_import_along_the_arrows_is_fine(name, text):
    assert judge(architecture.wrong_imports, text, name) == []


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    f()\nexcept:\n    pass",
        "try:\n    f()\nexcept:\n    log()",
        "try:\n    f()\nexcept Exception:\n    pass",
        "try:\n    f()\nexcept (ValueError, BaseException):\n    ...",
        "for x in y:\n    try:\n        f()\n    except Exception:\n        continue",
        "from contextlib import suppress\nwith suppress(Exception):\n    f()",
        "import contextlib\nwith contextlib.suppress(OSError, BaseException):\n    f()",
    ],
)
def test_a_swallowed_error_is_seen(text):
    assert judge(architecture.swallowed_errors, text)


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    f()\nexcept ValueError:\n    pass",
        "try:\n    f()\nexcept Exception:\n    log.exception('x')",
        "try:\n    f()\nexcept BaseException:\n    close()\n    raise",
        "from contextlib import suppress\nwith suppress(FileNotFoundError):\n    f()",
    ],
)
def test_an_error_that_is_named_or_told_is_not_swallowed(text):
    assert judge(architecture.swallowed_errors, text) == []


def test_printing_is_seen_outside_of_commands():
    for text in ("print('x')", "import sys\nsys.stdout.write('x')"):
        assert judge(architecture.printing, text, "common.names")
        assert judge(architecture.printing, text, "sender.cli") == []
        assert judge(architecture.printing, text, "receiver.cli.box_commands.status") == []
        assert judge(architecture.printing, text, "receiver.spark.verify.cli") == []


def test_a_missing_docstring_is_seen():
    assert judge(architecture.undocumented, "x = 1")
    assert judge(architecture.undocumented, '"""Says."""\nx = 1') == []


@pytest.mark.parametrize(
    "text",
    ["r'(?:a|b)*+c'", "r'(a|b)++'", "r'(a)?+'", "r'(a){2}+'", "r'(a){,2}+'", "rf'{a}({b})++'"],
)
def test_a_possessive_group_is_seen(text):
    assert judge(architecture.possessive_groups, f"import re\nre.compile({text})")


def test_other_groups_and_possessive_characters_are_fine():
    text = r"re.compile(r'(?:[a-z]++|\s?+|\)++|x{2}+)*(a+)+(b|c)?')"
    assert judge(architecture.possessive_groups, text) == []


def test_a_program_that_imports_from_the_working_directory_is_seen():
    text = "import sys, subprocess\nsubprocess.Popen([sys.executable, '-m', 'sender.cli'])"
    assert len(judge(architecture.foreign_modules, text)) == 1
    assert judge(architecture.foreign_modules, text.replace("'-m'", "'-P', '-m'")) == []
