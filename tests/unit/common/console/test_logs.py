import io
import json
import logging
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.console.logs import JsonFormatter, LogConfig, TextFormatter, set_up
from common.console.terminal import printable
from common.errors import ConfigError


@pytest.fixture(autouse=True)
def _restore_root():
    root = logging.getLogger()
    before = root.handlers[:], root.level
    root.handlers = []
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers, root.level = before[0], before[1]


def record(message="m", *args, error=None, **extra):
    made = logging.LogRecord("sender.x", logging.INFO, __file__, 1, message, args, error)
    made.__dict__.update(extra)
    return made


def raised(message):
    try:
        raise ValueError(message)
    except ValueError:
        return sys.exc_info()


@given(st.text(), st.text())
def test_a_record_is_one_line_of_text_whatever_stands_in_a_name(message, path):
    line = TextFormatter().format(record("%s", message, path=path))
    assert printable(line) == line


@given(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8")))
def test_a_record_is_one_json_object_that_keeps_names_exactly(message, path):
    line = JsonFormatter().format(record("%s", message, path=path))
    assert line.isascii()
    assert line.isprintable()
    entry = json.loads(line)
    assert (entry["message"], entry["path"]) == (message, path)


def test_a_name_that_is_no_utf_8_can_be_logged():
    assert r"\udc80" in TextFormatter().format(record(path="a\udc80"))
    assert json.loads(JsonFormatter().format(record(path="a\udc80")))["path"] == "a\udc80"


def test_text_has_time_level_logger_message_and_extras():
    line = TextFormatter().format(record("sent %d", 3, path="a b", size=5))
    time, rest = line.split(" ", 1)
    assert rest == 'INFO sender.x: sent 3 path="a b" size=5'
    assert time[19] == "."
    assert time[23] in "+-"


def test_no_line_of_a_traceback_can_pass_for_a_record():
    forged = "x\n2026-01-01T00:00:00.000+00:00 INFO sender.x: all is well\x1b[2J"
    first, *others = TextFormatter().format(record(error=raised(forged))).split("\n")
    assert "INFO sender.x: m" in first
    assert all(line.startswith("  | ") for line in others)
    assert "\x1b" not in "".join(others)
    entry = json.loads(JsonFormatter().format(record(error=raised(forged))))
    assert entry["traceback"][-1].endswith("all is well\x1b[2J")


def test_an_extra_cannot_replace_what_the_record_says_itself():
    entry = json.loads(JsonFormatter().format(record(level="forged", time="never")))
    assert entry["level"] == "info"
    assert (entry["level_"], entry["time_"]) == ("forged", "never")


def test_records_below_the_level_are_left_out_unless_verbose():
    for verbose, expected in ((False, 1), (True, 2)):
        stream = io.StringIO()
        set_up(LogConfig(format="json"), verbose=verbose, stream=stream)
        logging.getLogger("sender").debug("fine")
        logging.getLogger("sender").info("coarse")
        logging.getLogger("urllib3.connectionpool").debug("noise")
        assert len(stream.getvalue().splitlines()) == expected


def test_a_log_file_that_logrotate_moved_is_begun_anew(tmp_path):
    file = tmp_path / "x.log"
    set_up(LogConfig(file=file))
    logging.getLogger("sender").info("one")
    file.rename(tmp_path / "x.log.1")
    logging.getLogger("sender").info("two")
    assert "one" in (tmp_path / "x.log.1").read_text()
    assert "two" in file.read_text()


def test_a_log_file_that_cannot_be_opened_is_a_configuration_error(tmp_path):
    with pytest.raises(
        ConfigError, match=r"log.file = .*gone/x.log: expected a file.*No such file"
    ):
        set_up(LogConfig(file=tmp_path / "gone" / "x.log"))
