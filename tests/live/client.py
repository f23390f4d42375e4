"""Speaks to one server, in the Python that has the client package of that server's version.

Each line of the standard input is `{"sql": "...", "table": false}`; each gets a line back:
`{"columns": [...], "types": [...], "rows": [[time, text or null, ...], ...]}`, `{"done": true}`
or `{"error": "..."}`. Imports nothing of this project: that Python does not have it.
"""

import json
import sys
from typing import Any

from iotdb.Session import Session  # type: ignore[import-not-found]

ASKS = ("select", "show", "count", "desc")


def tree(port: int) -> Any:
    session = Session("127.0.0.1", port, "root", "root")
    session.open(False)
    return session


def table(port: int) -> Any:
    from iotdb.table_session import (  # type: ignore[import-not-found]
        TableSession,
        TableSessionConfig,
    )

    return TableSession(TableSessionConfig(node_urls=[f"127.0.0.1:{port}"]))


def rows(found: Any) -> dict[str, Any]:
    """Values as the client's text of them: what they are is said by their types."""
    types: dict[int, str] = {}
    given = []
    while found.has_next():
        record = found.next()
        row: list[Any] = [record.get_timestamp()]
        for place, field in enumerate(record.get_fields()):
            there = field is not None and not field.is_null()
            if there:
                types[place] = field.get_data_type().name
            row.append(field.get_string_value() if there else None)
        given.append(row)
    columns = list(found.get_column_names())
    found.close_operation_handle()
    kinds = [types.get(place) for place in range(len(columns))]
    return {"columns": columns, "types": kinds, "rows": given}


class Speaker:
    """One session of each model, made when first needed and again after it broke."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._sessions: dict[bool, Any] = {}

    def say(self, sql: str, of_tables: bool) -> dict[str, Any]:
        if of_tables not in self._sessions:
            self._sessions[of_tables] = (table if of_tables else tree)(self._port)
        session = self._sessions[of_tables]
        if sql.lower().startswith(ASKS):
            return rows(session.execute_query_statement(sql))
        try:
            code = session.execute_non_query_statement(sql)
        except Exception as error:
            # A server of 1.0 that stands alone has done a write when it breaks the connection:
            # it cannot put its own (empty) address into the answer.
            if not sql.lower().startswith("insert") or "TSocket read 0 bytes" not in str(error):
                raise
            del self._sessions[of_tables]
            return {"done": True}
        if code not in (None, 0):  # older packages only print what was wrong
            return {"error": f"status {code}"}
        return {"done": True}


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # the package prints
    speaker = Speaker(int(sys.argv[1]))
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = speaker.say(order["sql"], order["table"])
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
