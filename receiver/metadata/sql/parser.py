"""From the text of a statement to its value.

    parse("show timeseries root.sg.** where unit = c limit 10")

Whatever the text, `parse` gives a statement or raises an error that says where in the text, and
what was expected there: `SqlError`, or for a path, type, encoding or compression its own.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Set
from functools import cache
from importlib import resources
from typing import Final

from lark import Lark
from lark.exceptions import UnexpectedToken
from lark.parsers.lalr_interactive_parser import InteractiveParser

from common.errors import TsferryError
from receiver.metadata.model.errors import SqlError
from receiver.metadata.sql import statement_reader
from receiver.metadata.sql.lexing import END_TYPE, MAX_STATEMENT, Words, shown, sql_error
from receiver.metadata.sql.statement_reader import Misfit, Reader
from receiver.metadata.sql.statements import Statement

__all__ = ["keywords", "next_words", "parse"]

_IN_WORDS: Final = {
    END_TYPE: "the end",
    "PATH": "a path",
    "NAME": "a name",
    "INT": "a number",
    "STRING": "a string",
    "COMMA": "`,`",
    "SEMICOLON": "`;`",
    "EQUAL": "`=`",
    "LPAR": "`(`",
    "RPAR": "`)`",
}
_VALUE: Final = frozenset({"NAME", "INT", "STRING"})
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_COMPARED: Final = 40
"""Characters of a word that are compared with keywords."""


def parse(text: str) -> Statement:
    """The statement that a text is.

    Raises:
        SqlError: it is none.
        IllegalPathError: a path in it is none.
        UnknownTypeError, UnknownEncodingError, UnknownCompressionError: there is none such.
    """
    if len(text) > MAX_STATEMENT:
        why = f"the statement has {len(text)} characters, at most {MAX_STATEMENT} are read"
        raise sql_error(why, text, MAX_STATEMENT)
    if not text.isascii() and (found := _SURROGATE.search(text)):
        raise sql_error(f"{found[0]!a} is half a character", text, found.start())
    try:
        statement = _parser().parse(text)
    except UnexpectedToken as error:
        raise _unexpected(error, text) from None
    except Misfit as misfit:
        raise _misfitting(misfit, text) from None
    return statement  # type: ignore[return-value]  # the reader makes statements, not trees


@cache
def _parser() -> Lark:
    grammar = (
        resources.files(statement_reader.__package__).joinpath("grammar.lark").read_text("utf-8")
    )
    return Lark(grammar, parser="lalr", lexer=Words, transformer=Reader(), maybe_placeholders=False)


@cache
def keywords() -> frozenset[str]:
    """All keywords, in upper case."""
    names = {terminal.name for terminal in _parser().terminals}
    return frozenset(names - _IN_WORDS.keys())


def next_words(text: str) -> frozenset[str]:
    """What may follow a text that begins a statement: keywords, and of `WORDS` those that may.

    Empty for a text that begins none. For completion.
    """
    interactive = _parser().parse_interactive(text)
    try:
        interactive.exhaust_lexer()
        return frozenset(_accepted(interactive))
    except Exception:  # whatever is wrong with it, nothing can follow
        return frozenset()


# -- errors ----------------------------------------------------------------------------------------


def _unexpected(error: UnexpectedToken, text: str) -> SqlError:
    token = error.token
    ended = token.type == END_TYPE
    position = len(text.rstrip()) if ended else token.start_pos or 0
    expected = _accepted(error.interactive_parser)
    found = "the statement ends here" if ended else f"found {shown(token)!r}"
    why = f"expected {_listed(expected)}, {found}"
    if not ended and (near := _nearest(str(token), expected)):
        why += f"; did you mean {near}?"
    length = 1 if ended else len(token)
    return sql_error(why, text, position, length, unfinished=ended)


def _misfitting(misfit: Misfit, text: str) -> TsferryError:
    position, end = misfit.span or (0, len(text))
    error = sql_error(misfit.why, text, position, end - position)
    if misfit.cause is None:
        return error
    return type(misfit.cause)(error.message, extra={**misfit.cause.extra, **error.extra})


def _accepted(interactive: InteractiveParser | None) -> set[str]:
    # Of what the table has for this state, only what truly leads on.
    assert interactive is not None
    accepts: set[str] = interactive.accepts()  # type: ignore[no-untyped-call]
    return accepts - {"SEMICOLON"}


def _listed(expected: Set[str]) -> str:
    words = sorted(expected - _IN_WORDS.keys())
    if expected >= _VALUE:
        words.append("a value")
        expected = expected - _VALUE
    words += [text for name, text in _IN_WORDS.items() if name in expected and name != END_TYPE]
    if END_TYPE in expected:
        words.append("the end")
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _nearest(word: str, expected: Set[str]) -> str | None:
    candidates = [name for name in expected if name not in _IN_WORDS]
    near = difflib.get_close_matches(word.upper()[:_COMPARED], candidates, n=1, cutoff=0.7)
    return near[0] if near else None
