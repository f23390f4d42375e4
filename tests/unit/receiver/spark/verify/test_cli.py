"""Wrong options are named, with the value and what was expected, before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("numba")

from common.console.cli import run
from common.errors import NoSpaceError
from receiver.spark.finder import DataFile
from receiver.spark.report.results import FileResult, Finding, Judgement, Severity
from receiver.spark.verify import running
from receiver.spark.verify.cli import cli
from receiver.spark.verify.examining.parts import Expected
from receiver.spark.verify.verify_options import VerifyOptions
from receiver.spark.verify.verifying import _unknown, verdicts_of
from tests.support.verifications import file
from tests.support.verifications import run as verification


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("receiver.spark.verify.session.start", never)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--older-than", "soon"], "--older-than soon"),
        (["--older-than", "0s"], "--older-than 0s"),
        (["--new", "--older-than", "1d"], "--new and --older-than"),
        (["--time-limit", "x"], "--time-limit x"),
        (["--time-unit", "ns"], "--time-unit: only with --path"),
        (["--time-unit", "h", "--path", "."], "'h' is not one of"),
        (["--path", "/nowhere/*.tsfile"], "--path '/nowhere/*.tsfile': expected TsFiles there"),
        (["--path", ""], "--path '': expected a directory"),
        (["--path", ".", "--new"], "--new: not with --path"),
        (["--path", ".", "--task", "1"], "--task: not with --path"),
        (["--path", ".", "--catalog", "s3://a/b"], "--catalog: not with --path"),
        (["--catalog", "/etc/tsferry"], "--catalog /etc/tsferry: expected s3://bucket/prefix"),
        (["--receiver", "ftp://x"], "--receiver ftp://x: expected http"),
        (["--master", "lokal[2]"], "--master lokal[2]"),
        (["--master", "local[0]"], "--master local[0]"),
        (["--report", "/etc/passwd"], "--report /etc/passwd"),
        (["--report", "/proc/version/x"], "--report /proc/version/x"),
        (["--config", "/nowhere.toml"], "/nowhere.toml"),
        (["--frobnicate"], "--frobnicate"),
    ],
)
def test_a_wrong_option_is_named_before_spark_starts(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cli, "tsferry-verify", arguments) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("master", ["local", "local[*]", "local[4,2]", "spark://a:7077", "yarn"])
def test_masters_that_spark_knows_are_taken(
    master: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is wrong here is the configuration, which is read after the options."""
    assert run(cli, "tsferry-verify", ["--master", master, "--config", "/nowhere.toml"]) == 2
    assert "--master" not in capsys.readouterr().err


def result(verdict: Judgement, *findings: Finding, md5: str = "") -> FileResult:
    return FileResult(
        "p", "", "", "", "", "", "", None, 9, md5, 4, 0, 0, 0, 0, 0, None, None, 0, None,
        verdict, findings, 0.0,
    )  # fmt: skip


def test_the_engine_is_told_of_files_that_could_be_judged_and_of_no_others() -> None:
    bad = Finding(Severity.BAD, "pages", "root.d", "s", 77, "no values")
    files = [
        result(Judgement.PROVED),
        result(Judgement.UNPROVED, Finding(Severity.UNPROVED, "read", None, None, None, "EIO")),
        result(Judgement.BAD, bad, bad),
    ]
    expected = [Expected(name, md5="0" * 32) for name in ("a", "b", "c")]
    proved, broken = verdicts_of(files, expected)
    assert (proved.physical, proved.bad) == ("a", None)
    assert broken.physical == "c"
    assert broken.bad == ("verification: pages: root.d.s at offset 77: no values (and 1 more)")


@pytest.mark.parametrize(
    ("md5", "size", "as_sent"), [("0" * 32, 9, True), ("1" * 32, 9, False), ("", 8, False)]
)
def test_the_engine_is_told_whether_a_bad_file_is_as_it_was_sent(
    md5: str, size: int, as_sent: bool
) -> None:
    """Then its sender has nothing better to send."""
    bad = Finding(Severity.BAD, "pages", "root.d", "s", 77, "no values")
    expected = [Expected("a", size=size, md5="0" * 32)]
    (told,) = verdicts_of([result(Judgement.BAD, bad, md5=md5)], expected)
    assert told.as_sent is as_sent


@pytest.mark.parametrize(("bad", "many", "told"), [(9, False, 11), (10, False, 2), (10, True, 12)])
def test_when_most_files_are_bad_at_once_a_human_decides(
    bad: int, many: bool, told: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Likelier than so many bad files is another disk, or a fault of ours."""
    from receiver.spark.verify.delivery import Delivered

    sent: list[object] = []

    def deliver(_: object, verdicts: list[object]) -> Delivered:
        sent.extend(verdicts)
        return Delivered(0, 0, 0)

    monkeypatch.setattr(running, "deliver", deliver)
    finding = Finding(Severity.BAD, "md5", None, None, None, "x")
    files = [result(Judgement.BAD, finding)] * bad + [result(Judgement.PROVED)] * 2
    outcome = type("Outcome", (), {"files": files, "merged": []})()
    options = type("Options", (), {"quarantine_many": many})()
    expected = [Expected(str(at), md5="0" * 32) for at in range(len(files))]
    listen = type("Listen", (), {"max_request_bytes": 1 << 20})()
    config = type("Config", (), {"listen": listen})()
    running._commit(config, outcome, expected, options)  # type: ignore[arg-type]
    assert len(sent) == told


def test_what_the_path_of_a_file_tells_is_all_that_is_known_of_it() -> None:
    path = "/data/unsequence/root.sg/0/7/1-1-0-0.tsfile"
    told = _unknown(DataFile((path,), path, 5, "root.sg"))
    assert told == Expected(path, database="root.sg", kind="unsequence")
    assert _unknown(DataFile(("/b.tsfile",), "/b.tsfile", 5)) == Expected("/b.tsfile")


def test_what_was_found_is_printed_whatever_becomes_of_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise NoSpaceError("no space")

    monkeypatch.setattr(running, "write", full)
    for as_json, said in ((True, '"proved": 2'), (False, "2 proved")):
        options = VerifyOptions(None, tmp_path / "report", as_json, 1.0, False, False)
        with pytest.raises(NoSpaceError):
            running._finish(verification([file(), file()]), None, options)
        told = capsys.readouterr().out
        assert said in told
        assert "report in" not in told
