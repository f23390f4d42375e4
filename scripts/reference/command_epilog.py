"""What stands below a command's help, cut: examples, exit codes, and what else is said."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["CommandEpilog", "cut_epilog"]

_EXAMPLE = re.compile(r"(tsferry-[a-z]+.*?)(?=\. [A-Z]|; |, with |, and |, then |\.?$)")


@dataclass(frozen=True)
class CommandEpilog:
    """The parts.

    Attributes:
        examples: a command line each.
        codes: exit code -> what it says; empty where the number says it all.
        said: what else, with its full stop; empty for nothing.
        behind: what is said behind the exit codes, likewise.
    """

    examples: tuple[str, ...]
    codes: dict[int, str]
    said: str
    behind: str


def cut_epilog(epilog: str) -> CommandEpilog:
    """Cut an epilog of one paragraph, as in `Example: x y. Works so. Exit codes: 0 done; 2 not.`"""
    flat = " ".join(epilog.replace("\b", "").split())
    before, _, codes = flat.partition("Exit codes: ")
    found = [each.strip(" .") for each in _EXAMPLE.findall(before)]
    rest = re.sub(r"^Examples?(?:, from cron)?:[\s;,.]*", "", _EXAMPLE.sub("", before))
    rest = rest.strip(" ;.,")
    said = "" if rest in ("", "then") else f"{rest[0].upper()}{rest[1:]}."
    codes, stop, behind = codes.removesuffix(".").partition(". ")
    parts = (each.partition(" ") for each in codes.split("; ") if each)
    numbered = {int(code): text for code, _, text in parts}
    return CommandEpilog(tuple(found), numbered, said, f"{behind}." if stop else "")
