"""A tree against a dictionary: any order of operations, with deaths at any step between them."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from common import crash
from common.durable import Tree
from tests.support import tiers

RELS = st.sampled_from(["a", "b", "d/a", "d/b", "d/e/a"])
CONTENT = st.binary(max_size=40)
DEATH = st.one_of(st.none(), st.integers(1, 6))


class TreeMachine(RuleBasedStateMachine):
    """Each step is done, refused, or cut off by a death; the files are the old or the new ones."""

    @initialize()
    def begin(self):
        self.directory = tempfile.TemporaryDirectory()
        self.tree = Tree(Path(self.directory.name))
        self.tree.make_dirs("d/e")
        self.files: dict[str, bytes] = {}

    def teardown(self):
        if hasattr(self, "tree"):
            self.tree.close()
            self.directory.cleanup()

    def found(self):
        return {rel: self.tree.read(rel) for rel, _ in self.tree.files()}

    def step(self, death, after, operation):
        """Do it with a death at the given point; `after` is what the files are once it is done."""
        left = [death]

        def hook(_name):
            if left[0] is not None:
                left[0] -= 1
                if left[0] == 0:
                    raise crash.SimulatedCrash

        before = dict(self.files)
        try:
            with crash.arm(hook):
                operation()
        except crash.SimulatedCrash:
            self.tree.sweep_temporaries()
            self.files = self.found()
            assert self.files in (before, after)
            return
        self.files = after

    @rule(rel=RELS, content=CONTENT, death=DEATH)
    def write(self, rel, content, death):
        after = {**self.files, rel: content}
        self.step(death, after, lambda: self.tree.write_atomic(rel, content))

    @rule(rel=RELS, death=DEATH)
    def unlink(self, rel, death):
        after = {key: value for key, value in self.files.items() if key != rel}
        there = rel in self.files
        self.step(death, after, lambda: self.expect(self.tree.unlink(rel) is there))

    @rule(old=RELS, new=RELS, replace=st.booleans(), death=DEATH)
    def rename(self, old, new, replace, death):
        source, target = old, new
        if source not in self.files or source == target:
            return
        if target in self.files and not replace:
            self.refused(FileExistsError, lambda: self.tree.rename(source, target, replace=False))
            return
        after = {key: value for key, value in self.files.items() if key != source}
        after[target] = self.files[source]
        self.step(death, after, lambda: self.tree.rename(source, target, replace=replace))

    @rule(old=RELS, new=RELS, death=DEATH)
    def copy(self, old, new, death):
        source, target = old, new
        if source not in self.files:
            self.refused(FileNotFoundError, lambda: self.tree.copy(source, target))
        elif target in self.files:
            self.refused(FileExistsError, lambda: self.tree.copy(source, target))
        else:
            after = {**self.files, target: self.files[source]}
            self.step(death, after, lambda: self.tree.copy(source, target))

    @rule(rel=RELS, content=CONTENT)
    def append(self, rel, content):
        with self.tree.append_file(rel) as log:
            assert log.append(content) == len(self.files.get(rel, b""))
        self.files[rel] = self.files.get(rel, b"") + content

    @staticmethod
    def expect(truth):
        assert truth

    @staticmethod
    def refused(kind, operation):
        try:
            operation()
        except kind:
            return
        raise AssertionError(f"no {kind.__name__}")

    @invariant()
    def the_disk_is_as_the_model(self):
        if hasattr(self, "tree"):
            assert self.found() == self.files


TestTree = TreeMachine.TestCase
TestTree.settings = settings(max_examples=tiers.examples(40), stateful_step_count=25)
