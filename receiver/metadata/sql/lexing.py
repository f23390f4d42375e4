"""Words of a statement, for the grammar.

A word is a string in quotes, a mark, or a run of other characters, in which parts in back-ticks
(and, behind a dot, in double quotes, as old databases have them in paths) may hold anything. What
the word stands for depends on what may come next: where `tags` is expected it is the keyword, and
where a name is expected it is a name. So no name is forbidden, and none needs quotes because some
statement has a keyword like it. Outside quotes blanks and comments (`-- ...` to the end of the
line, `/* ... */`) separate words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar, Final, NamedTuple, cast

from lark import Token
from lark.common import LexerConf
from lark.lexer import Lexer, LexerState, PatternStr

from receiver.metadata.model.errors import SqlError

__all__ = [
    "END_TYPE",
    "MAX_STATEMENT",
    "WORDS",
    "Placed",
    "Word",
    "Words",
    "shown",
    "sql_error",
    "statements",
]

END_TYPE: Final = "$END"
"""Type of the token behind the last."""
WORDS: Final = ("PATH", "NAME", "INT", "STRING")
"""Types of words that are no keywords."""
MAX_STATEMENT: Final = 1 << 20
"""Characters of one statement."""
_SHOWN: Final = 40
"""Characters of a word that an error repeats."""

# No repeated group is possessive: Python 3.11.2 reads those wrong. A string can be read in one way
# only all the same, since a quote behind which another stands does not end it.
_GAP: Final = re.compile(r"(?:\s++|--[^\n]*+|/\*(?s:.*?)\*/)*")
_WORD: Final = re.compile(
    r"""'(?:[^']++|'')*'(?!')
      | "(?:[^"]++|"")*"(?!")
      | ([,;=()])
      | ((?!/\*)(?:[^\s,;=()'"`]++|`(?:[^`]++|``)*`(?!`)|(?<=\.)"(?:[^"]++|"")*"(?!"))+)""",
    re.VERBOSE,
)
"""Group 1: a mark. Group 2: a keyword, name, path or number. Neither: a string."""
_MARKS: Final = {",": "COMMA", ";": "SEMICOLON", "=": "EQUAL", "(": "LPAR", ")": "RPAR"}
_LIKE_PATH: Final = re.compile("[.*`]").search
_IS_PATH: Final = re.compile(r"root(?:\.|\Z)", re.IGNORECASE).match


class Word(str):
    """A word, as the parser wants its tokens; made in a third of the time that lark's takes.

    Line and column are counted only when somebody asks: in an error.

    Attributes:
        type: name of its terminal in the grammar.
        start_pos: characters before it.
    """

    __slots__ = ("start_pos", "type")

    type: str
    start_pos: int
    line = column = end_line = end_column = end_pos = None


class Words(Lexer):
    """The lexer: asks the parser's state which kinds of words may come next."""

    __future_interface__: ClassVar[int] = 1

    def __init__(self, lexer_conf: LexerConf) -> None:
        self._keywords = {
            terminal.pattern.value.upper(): terminal.name
            for terminal in lexer_conf.terminals
            if isinstance(terminal.pattern, PatternStr)
        }

    def lex(self, lexer_state: LexerState, parser_state: Any) -> Iterator[Token]:
        """The tokens of a text.

        Raises:
            SqlError: there is none at some place: a quote or comment without its end.
        """
        given = lexer_state.text
        assert given is not None
        text = given if isinstance(given, str) else given.text
        states = parser_state.parse_conf.states
        gap, word, keywords = _GAP.match, _WORD.match, self._keywords
        position = gap(text, 0).end()  # type: ignore[union-attr]  # it may be empty
        while position < len(text):
            found = word(text, position)
            if found is None:
                raise _unfinished(text, position)
            mark, plain = found.groups()
            if mark:
                kind = _MARKS[mark]
            elif plain:
                kind = _kind(plain, states[parser_state.state_stack[-1]], keywords)
            else:
                kind = "STRING"
            token = Word(found[0])
            token.type, token.start_pos = kind, position
            yield cast("Token", token)
            position = gap(text, found.end()).end()  # type: ignore[union-attr]


def _kind(word: str, expected: dict[str, Any], keywords: dict[str, str]) -> str:
    keyword = keywords.get(word.upper())
    if keyword in expected:
        return keyword
    if "PATH" in expected and _IS_PATH(word):
        return "PATH"
    if "INT" in expected and word.isdecimal() and word.isascii():
        return "INT"
    if "NAME" in expected:
        return "NAME"
    if "PATH" in expected and (len(expected) == 1 or _LIKE_PATH(word)):
        return "PATH"  # its own parser says what is wrong with it
    return keyword or "NAME"


def _unfinished(text: str, position: int) -> SqlError:
    mark = text[position]
    what = "comment" if text.startswith("/*", position) else f"quote {mark}"
    return sql_error(f"the {what} that begins here has no end", text, position)


def sql_error(
    why: str, text: str, position: int, length: int = 1, *, unfinished: bool = False
) -> SqlError:
    """The error of a statement at a place in it.

    Args:
        why: what was expected and found.
        text: the statement.
        position: characters before the place.
        length: characters of the place.
        unfinished: whether the text is right as far as it goes.
    """
    line, column = _place(text, position)
    return SqlError(
        f"line {line}, column {column}: {why}",
        extra={
            "line": line,
            "column": column,
            "length": max(length, 1),
            "reason": why,
            "unfinished": unfinished,
        },
    )


def shown(word: str) -> str:
    """A word as an error repeats it."""
    return str(word) if len(word) <= _SHOWN else f"{word[:_SHOWN]}..."


class Placed(NamedTuple):
    """A statement of a script, and where it begins there, both from 1 up."""

    line: int
    column: int
    text: str


def statements(script: str) -> Iterator[Placed]:
    """The statements of a script; `;` ends one.

    A quote or comment without its end reaches to the end of the script: its statement says so.
    """
    line, counted = 1, 0
    for begin, end in _spans(script):
        line += script.count("\n", counted, begin)
        counted = begin
        column = begin - script.rfind("\n", 0, begin)
        yield Placed(line, column, script[begin:end].rstrip())


def _spans(script: str) -> Iterator[tuple[int, int]]:
    gap, word = _GAP.match, _WORD.match
    position = begin = gap(script, 0).end()  # type: ignore[union-attr]  # it may be empty
    while position < len(script):
        found = word(script, position)
        if found is None:
            break
        end = found.end()
        if found[1] == ";":
            if position > begin:
                yield begin, position
            begin = gap(script, end).end()  # type: ignore[union-attr]
        position = gap(script, end).end()  # type: ignore[union-attr]
    if begin < len(script):
        yield begin, len(script)


def _place(text: str, position: int) -> tuple[int, int]:
    """Line and column of a position, from 1 up."""
    return text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)
