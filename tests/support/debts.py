"""What a program still owes the disk when it gives its word: the order of durable steps, judged.

Read from recorded system calls alone (`tests.support.recording`), so it knows no function of the
programs. A change of the disk is a debt until it is flushed:

    bytes   of a file, until an fsync or fdatasync of it that began after the write had ended
    cut     of a file, a new length, likewise
    name    a file or directory that was made, linked or renamed to, until its directory is flushed
    moved   a name that was renamed away, likewise
    end     a name that was removed, likewise

A debt is its thread's; when its process was killed it is everybody's. Whoever gives a word may have
none, but for what is listed with a reason (`Forgiven`). Words are

    - a line or frame in a log (what is opened with O_APPEND), before it is written;
    - a request, an answer;
    - a name that goes: what takes its place is on the disk before;
    - a rename or link: the bytes of the file itself are flushed, whoever wrote them;
    - a line or frame that names a file: wherever it lies under that name, on the disk are its
      bytes, its name, and the name of each directory above it;
    - an answer that calls a task done: the frame with its id is flushed;
    - the end of a process: all of it.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.recording import Step

WRITES = ("write", "pwrite64", "writev", "pwritev", "pwritev2", "ftruncate", "fallocate")
SENDS = ("sendto", "sendmsg", *WRITES)
ENDS = ("unlink", "unlinkat", "rmdir")
UNKNOWN = ("copy_file_range", "sendfile", "truncate", "symlink", "symlinkat", "syncfs")
NOTHING = r"(?!)"
_ANSWER = re.compile(rb"HTTP/1\.[01] (?!100)\d{3}")
_REQUEST = re.compile(rb"((?:GET|HEAD|POST|PUT|PATCH|DELETE) \S+) HTTP/1\.[01]")
_DONE = re.compile(rb'"state": ?"done"')
_FILE = re.compile(rb"(?:un)?sequence/[^\x00-\x1f\x80-\x9f\"]+?\.tsfile(?:\.resource)?")
_PLACED = re.compile(r"data[^/]*/(?:un)?sequence/")
_END = "at its end"

_Who = tuple[int, int]
"""Process and thread."""


@dataclass(frozen=True)
class Debt:
    """A change that is not on the disk."""

    what: str
    path: str
    process: int
    thread: int


@dataclass(frozen=True)
class Forgiven:
    """What need not be on the disk when a word is given, and why.

    Attributes:
        path: all of it, as a regular expression.
        what: kinds of debts.
        word: part of the word that may be given all the same, as a regular expression.
        own: if it is of the process that gives the word.
        left: if it was left by one that was killed.
        end: at the end of its process too.
    """

    path: str
    what: Sequence[str]
    why: str
    word: str = ""
    own: bool = True
    left: bool = True
    end: bool = True

    def __contains__(self, debt: Debt) -> bool:
        return debt.what in self.what and re.fullmatch(self.path, debt.path) is not None


@dataclass
class _Inode:
    """A file, under whatever names; what was changed, by whom, and when it was last."""

    unflushed: dict[tuple[str, _Who], float] = field(default_factory=dict)


class Debts:
    """The debts of one end, from its first process to its last.

    Attributes:
        broken: words that were given too early; the first of each kind.
        words: how many were looked at, by kind.
    """

    def __init__(
        self, root: Path, forgiven: Iterable[Forgiven], *, log: str = NOTHING, plan: str = NOTHING
    ) -> None:
        """Begin with nothing.

        Args:
            root: all below it counts.
            forgiven: what may be owed.
            log: matches the files of the engine's log.
            plan: matches logs that name files which may not be here yet.
        """
        self._root = os.path.realpath(root)
        self._forgiven = tuple(forgiven)
        self._log = re.compile(log)
        self._plan = re.compile(plan)
        self._files: dict[str, _Inode] = {}
        self._directories: set[str] = set()
        self._names: dict[str, dict[str, tuple[str, _Who, float]]] = defaultdict(dict)
        self._appended: set[str] = set()
        self._written: list[tuple[str, bytes, float]] = []
        self._committed = b""
        self._asked: dict[str, str] = {}
        self._loaders: set[int] = set()
        self._process = 0
        self._reported: set[str] = set()
        self.broken: list[str] = []
        self.words: Counter[str] = Counter()

    def follow(
        self, steps: Sequence[Step], *, killed: bool = False, inherits: bool = False
    ) -> None:
        """Go through one process.

        Args:
            steps: what it called.
            killed: then it need not settle its debts.
            inherits: it has to settle, at its end, what those owed that were killed before.
        """
        self._process = steps[0].process
        # Who moves files to their places works beside those who answer, and has words of its own.
        self._loaders = {
            step.thread
            for step in steps
            if step.name.startswith("rename") and _PLACED.match(self._rel(step.paths[-1]) or "")
        }
        done = [step for step in steps if step.result >= 0]
        moments = [(step.begin, self._before, step) for step in done]
        moments += [(step.end, self._after, step) for step in done]
        for _, act, step in sorted(moments, key=lambda moment: moment[0]):
            act(step)
        if not killed:
            self._word(_END, "", [*self._own(), *(self._left() if inherits else ())])

    def unflushed(self) -> list[str]:
        """Files of which not all is on the disk, whoever wrote them."""
        return [rel for rel, inode in self._files.items() if inode.unflushed]

    def replaced(self, rel: str) -> None:
        """Somebody else has put another file there, and flushed nothing."""
        self._files[rel] = _Inode({("bytes", (0, 0)): 0.0})

    # -- words -----------------------------------------------------------------------------

    def _before(self, step: Step) -> None:
        """Judge what a call says, as it begins."""
        own = [each for each in self._own() if each.thread == step.thread]
        if step.name in SENDS and step.descriptors[0].startswith("TCP"):
            self._sends(step, own)
        elif step.name in WRITES:
            self._writes(step, own)
        elif step.name.startswith(("rename", "link")):
            self._renames(step)
        elif step.name in ENDS and (rel := self._rel(step.paths[0])) is not None:
            self._word("before the end of", rel, (each for each in own if each.what != "end"))

    def _sends(self, step: Step, own: list[Debt]) -> None:
        data = step.texts[0] if step.texts else b""
        asked = self._asked.get(step.descriptors[0], "")
        if found := _REQUEST.match(data):
            self._word("before the request", found[1].decode(), own + self._left())
        elif _ANSWER.match(data):
            beside = [each for each in self._own() if each.thread not in self._loaders]
            beside = [each for each in beside if not self._is_next_block(each, asked, step.thread)]
            self._word("before the answer to", asked, [*beside, *self._left()])
        elif asked and _DONE.search(data):
            self.words["done"] += 1
            task = re.search(r"/tasks/([^/? ]+)", asked)
            if task is None or task[1].encode() not in self._committed:
                self._break(asked, "answered done before its commit is flushed")

    @staticmethod
    def _is_next_block(debt: Debt, asked: str, thread: int) -> bool:
        """Whether a debt is of a block behind the one that is answered, which has its own answer.

        The thread that answers a block is the one that wrote and flushed it.
        """
        upload = re.match(r"PATCH \S+/files/([0-9a-f]{32})", asked)
        mine = upload is not None and re.search(rf"/\.uploads/{upload[1]}\.\w+$", debt.path)
        return bool(mine) and debt.thread != thread

    def _writes(self, step: Step, own: list[Debt]) -> None:
        rel = self._rel(step.descriptors[0])
        if rel is None or rel not in self._appended:
            return
        self._word(
            "before a line in", rel, own + [each for each in self._left() if each.path == rel]
        )
        if self._plan.fullmatch(rel):
            return
        for named in {each.decode() for data in step.texts for each in _FILE.findall(data)}:
            for there in [each for each in self._files if each.endswith(f"/{named}")]:
                self._named_in(rel, there)

    def _named_in(self, log: str, rel: str) -> None:
        """A file that a line names, where it lies now; one that a database owns is its business."""
        self.words[f"{_kind(log)} names {_kind(rel)}"] += 1
        if self._files[rel].unflushed:
            self._break(f"a line in {log}", f"names {rel}, whose bytes are not flushed")
        above = rel
        while above:
            directory, _, name = above.rpartition("/")
            if name in self._names[directory]:
                self._break(f"a line in {log}", f"names {rel}: {above} is not flushed")
            above = directory

    def _renames(self, step: Step) -> None:
        source, target = (self._rel(each) for each in step.paths[:2])
        if source is None or target is None or source in self._directories:
            return
        kind = "link" if step.name.startswith("link") else "rename"
        self.words[f"{kind} to {_kind(target)}"] += 1
        if self._inode(source).unflushed:
            self._break(f"{kind} to {target}", f"the bytes of {source} are not flushed")
        told = (self._committed, *(text for _, text, _ in self._written))
        if _PLACED.match(target) and any(
            target.partition("/")[2].encode() in each for each in told
        ):
            self._break(f"{kind} to {target}", "comes after the frame that names it")

    def _word(self, word: str, of: str, debts: Iterable[Debt]) -> None:
        self.words[f"{word} {_kind(of)}"] += 1
        for each in sorted(set(debts), key=str):
            left = each.process != self._process
            if not any(
                each in forgiven
                and re.search(forgiven.word, f"{word} {of}")
                and (forgiven.left if left else forgiven.own)
                and (forgiven.end or word != _END)
                for forgiven in self._forgiven
            ):
                killed = ", left by a process that was killed," if left else ""
                self._break(f"{word} {of}", f"{each.what} of {each.path}{killed} is not flushed")

    def _break(self, word: str, why: str) -> None:
        """Report the first of a kind: one flush that is missing makes many words false."""
        if _kind(why) not in self._reported:
            self._reported.add(_kind(why))
            self.broken.append(f"{word}: {why}")

    # -- debts -----------------------------------------------------------------------------

    def _own(self) -> Iterator[Debt]:
        """Of the process that runs."""
        return (each for each in self._every() if each.process == self._process)

    def _left(self) -> list[Debt]:
        """Of processes that were killed."""
        return [each for each in self._every() if 0 < each.process < self._process]

    def _every(self) -> Iterator[Debt]:
        for rel, inode in self._files.items():
            for what, who in inode.unflushed:
                yield Debt(what, rel, *who)
        for directory, names in self._names.items():
            for name, (what, who, _) in names.items():
                yield Debt(what, f"{directory}/{name}".lstrip("/"), *who)

    # -- what a call has changed -----------------------------------------------------------

    def _after(self, step: Step) -> None:
        match step.name:
            case "openat" | "openat2":
                self._opened(step)
            case "fsync" | "fdatasync":
                self._flushed(step)
            case "mkdir" | "mkdirat":
                self._made(step)
            case "recvfrom":
                if step.texts and (found := _REQUEST.match(step.texts[0])):
                    self._asked[step.descriptors[0]] = found[1].decode()
            case name if name.startswith("rename"):
                self._renamed(step)
            case name if name.startswith("link"):
                self._linked(step)
            case name if name in ENDS:
                self._ended(step)
            case name if name in WRITES:
                self._changed(step)
            case name if name in UNKNOWN:
                touched = [*step.descriptors, *step.paths]
                assert all(self._rel(each) is None for each in touched), step

    def _opened(self, step: Step) -> None:
        rel = self._rel(step.opened or "")
        if rel is None:
            return
        if "O_DIRECTORY" in step.arguments:
            self._directories.add(rel)
            return
        if "O_APPEND" in step.arguments:
            self._appended.add(rel)
        if "O_CREAT" in step.arguments and rel not in self._files:
            self._files[rel] = _Inode()
            self._named("name", rel, step)
        if "O_TRUNC" in step.arguments:
            self._inode(rel).unflushed["cut", (step.process, step.thread)] = step.end

    def _changed(self, step: Step) -> None:
        if (rel := self._rel(step.descriptors[0])) is None:
            return
        what = "cut" if step.name == "ftruncate" else "bytes"
        self._inode(rel).unflushed[what, (step.process, step.thread)] = step.end
        if self._log.fullmatch(rel):
            self._written += [(rel, text, step.end) for text in step.texts]

    def _flushed(self, step: Step) -> None:
        if (rel := self._rel(step.descriptors[0])) is None:
            return
        if rel in self._directories:
            names = self._names[rel]
            for name in [each for each, (_, _, at) in names.items() if at <= step.begin]:
                del names[name]
            return
        unflushed = self._inode(rel).unflushed
        for change in [each for each, at in unflushed.items() if at <= step.begin]:
            del unflushed[change]
        for each in [each for each in self._written if each[0] == rel and each[2] <= step.begin]:
            self._committed += each[1]
            self._written.remove(each)

    def _made(self, step: Step) -> None:
        if (rel := self._rel(step.paths[0])) is not None:
            self._directories.add(rel)
            self._named("name", rel, step)

    def _renamed(self, step: Step) -> None:
        source, target = (self._rel(each) for each in step.paths[:2])
        if source is None or target is None:
            return
        for known in (self._files, self._names):
            for rel in [each for each in known if f"{each}/".startswith(f"{source}/")]:
                known[target + rel[len(source) :]] = known.pop(rel)  # type: ignore[assignment]
        below = {each for each in self._directories if f"{each}/".startswith(f"{source}/")}
        self._directories -= below
        self._directories |= {target + each[len(source) :] for each in below}
        self._named("moved", source, step)
        self._named("name", target, step)

    def _linked(self, step: Step) -> None:
        source, target = (self._rel(each) for each in step.paths[:2])
        if source is not None and target is not None:
            self._files[target] = self._inode(source)
            self._named("name", target, step)

    def _ended(self, step: Step) -> None:
        if (rel := self._rel(step.paths[0])) is not None:
            self._files.pop(rel, None)
            self._names.pop(rel, None)
            self._directories.discard(rel)
            self._named("end", rel, step)

    def _named(self, what: str, rel: str, step: Step) -> None:
        directory, _, name = rel.rpartition("/")
        self._names[directory][name] = (what, (step.process, step.thread), step.end)

    def _inode(self, rel: str) -> _Inode:
        """A file; of one that somebody else wrote nobody knows whether it was ever flushed."""
        return self._files.setdefault(rel, _Inode({("bytes", (0, 0)): 0.0}))

    def _rel(self, path: str) -> str | None:
        if path == self._root:
            return ""
        return path[len(self._root) + 1 :] if path.startswith(f"{self._root}/") else None


def _kind(text: str) -> str:
    """A path or a request without what differs from one to the next."""
    text = re.sub(r"\?\S*", "", text)
    text = re.sub(r"/(tasks|files)/[^/ ]+", r"/\1/X", text)
    text = re.sub(r"((?:un)?sequence/)\S*?(\.tsfile(?:\.resource)?)?(?=[\s:,]|$)", r"\1X\2", text)
    return re.sub(r"\d+\.\d+\.\d+\.\d+_(\w+)|[0-9a-f]{16,}|\d+", "N", text)
