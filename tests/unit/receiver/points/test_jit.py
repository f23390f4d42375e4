from __future__ import annotations

import importlib.util
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from receiver.points import jit


@pytest.fixture(autouse=True)
def _forget():
    """What is remembered of files and directories is not that of another test."""
    jit._place.cache_clear()
    jit._file_digest.cache_clear()
    yield
    jit._place.cache_clear()
    jit._file_digest.cache_clear()


def load(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def write_modules(folder: Path, inner: str = "x + 1") -> Path:
    (folder / "jit_inner.py").write_text(
        f"from receiver.points.jit import kernel\n@kernel\ndef inner(x):\n    return {inner}\n"
    )
    (folder / "jit_outer.py").write_text(
        "import jit_inner\nfrom receiver.points.jit import kernel\n"
        "@kernel\ndef outer(x):\n    return jit_inner.inner(x) * 10\n"
    )
    return folder / "jit_outer.py"


@pytest.fixture
def kernels(tmp_path, monkeypatch):
    """A module with a kernel that calls one of another module, and a directory for their code."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path))
    # Python would take a source of the same second and length for the one it has compiled.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield write_modules(tmp_path)
    for name in ("jit_inner", "jit_outer"):
        sys.modules.pop(name, None)


def again(path: Path):
    jit._file_digest.cache_clear()
    for name in ("jit_inner", "jit_outer"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()
    return load(path)


def hits(function) -> int:
    return sum(function.stats.cache_hits.values())


def test_what_was_compiled_is_found_again(kernels):
    assert load(kernels).outer(4) == 50
    second = again(kernels)
    assert second.outer(4) == 50
    assert hits(second.outer) == 1


def test_a_kernel_is_compiled_again_when_one_that_it_calls_has_changed(kernels):
    assert load(kernels).outer(4) == 50
    write_modules(kernels.parent, "x + 1 + 1")  # of another length: bytecode of this second counts
    second = again(kernels)
    assert second.outer(4) == 60
    assert hits(second.outer) == 0


@pytest.mark.parametrize("content", [b"", b"\x80\x04garbage"])
def test_a_damaged_file_is_compiled_anew(kernels, tmp_path, content):
    assert load(kernels).outer(4) == 50
    damaged = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert damaged
    for path in damaged:
        path.write_bytes(content)
    assert again(kernels).outer(4) == 50


def test_modules_in_an_archive_have_their_code_kept(kernels, tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "package.zip", "w") as archive:
        for name in ("jit_inner.py", "jit_outer.py"):
            archive.write(tmp_path / name, name)
            (tmp_path / name).unlink()
    monkeypatch.syspath_prepend(str(tmp_path / "package.zip"))
    assert importlib.import_module("jit_outer").outer(4) == 50
    sys.modules.pop("jit_outer")
    second = importlib.import_module("jit_outer")
    assert second.outer(4) == 50
    assert hits(second.outer) == 1


def test_a_full_disk_is_no_error(kernels, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(jit.FunctionCache, "save_overload", full)
    assert load(kernels).outer(4) == 50


def test_no_place_is_no_error(kernels, monkeypatch):
    monkeypatch.setattr(jit, "_places", lambda *_: iter(()))
    assert load(kernels).outer(4) == 50


def test_places_end_with_one_for_this_user(tmp_path):
    places = [str(path) for path, _ in jit._places(tmp_path, {"HOME": "/home/x"})]
    assert places[0] == str(tmp_path / "__pycache__")
    assert places[1].startswith("/home/x/.cache/tsferry/")
    assert len(places) == 3
    no_home = [path for path, _ in jit._places(tmp_path, {})]
    assert len(no_home) == 2


def test_a_shared_directory_is_ours_alone_or_not_used(tmp_path, monkeypatch):
    assert jit._is_good(tmp_path / "ours" / "below", shared=True)
    assert (tmp_path / "ours").stat().st_mode & 0o777 == 0o700

    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    assert not jit._is_good(tmp_path / "open" / "below", shared=True)

    (tmp_path / "link").symlink_to(tmp_path / "ours")
    assert not jit._is_good(tmp_path / "link" / "below", shared=True)

    monkeypatch.setattr(jit.os, "getuid", lambda: 4711)
    assert not jit._is_good(tmp_path / "ours" / "below", shared=True)


def test_a_directory_that_cannot_be_written_to_is_passed_over(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    candidates = [(tmp_path / "file" / "below", False), (tmp_path / "good" / "below", True)]
    monkeypatch.setattr(jit, "_places", lambda *_: iter(candidates))
    assert jit._place(tmp_path) == tmp_path / "good" / "below"


def test_all_bytes_are_of_one_type_to_the_kernels():
    data = np.zeros(3, np.uint8)
    view = jit.readonly(data)
    assert not view.flags.writeable
    assert data.flags.writeable
    assert jit.readonly(view) is view
