import pytest

from common.config.toml_file import key_lines, read_toml
from common.errors import ConfigError, Permanent

TOML = '''\
# top
schema = "a"   # [not.a.table]
text = """
[not.a.table]
key = 1
"""
raw = \'\'\'
also = "not"\'\'\'\'
list = [
    "[x]",  # ]
    { a = 1, b = [2,
      3] },
    [1],
    [[1]],
]

[transfer]
parallel = 4
"quoted" = 1
retry.first = 2

[[receiver]]
name = "one"
[receiver.extra]
deep = 1

[[ receiver ]]
name = "two"

[other]
last = 1
'''


def test_each_key_is_found_on_its_line():
    assert key_lines(TOML) == {
        "schema": 2,
        "text": 3,
        "raw": 7,
        "list": 9,
        "transfer": 17,
        "transfer.parallel": 18,
        "transfer.quoted": 19,
        "transfer.retry.first": 20,
        "receiver": 22,
        "receiver[0]": 22,
        "receiver[0].name": 23,
        "receiver[0].extra": 24,
        "receiver[0].extra.deep": 25,
        "receiver[1]": 27,
        "receiver[1].name": 28,
        "other": 30,
        "other.last": 31,
    }


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_lines_are_right_whatever_ends_them(tmp_path, newline):
    file = tmp_path / "c.toml"
    file.write_bytes(TOML.replace("\n", newline).encode())
    assert read_toml(file).where("other.last") == f"{file}:31"


def test_a_key_of_an_inline_table_is_found_at_the_table(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text('a = 1\nreceiver = [{ name = "x" }]\n')
    assert read_toml(file).where("receiver[0].name") == f"{file}:2"
    assert read_toml(file).where("nowhere.at.all") == str(file)


def test_a_byte_order_mark_of_a_windows_editor_does_no_harm(tmp_path):
    file = tmp_path / "c.toml"
    file.write_bytes(b"\xef\xbb\xbfa = 1\r\n")
    assert read_toml(file).tree == {"a": 1}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a = 1\nb = \xff\n", r"c.toml:2: not UTF-8"),
        (b"a = 1\n\nb = = 2\n", r"c.toml:3: not valid TOML"),
        (b"a = 1\na = 2\n", r"c.toml:2: not valid TOML"),
        (b'a = "open', r"c.toml: not valid TOML|c.toml:1: not valid TOML"),
        (b"a = " + b"[" * 100_000, r"nested too deeply"),
        (b"a = " + b"9" * 5000, r"not valid TOML"),
        (b"#" * (1 << 20) + b"\n", r"at most|larger than"),
    ],
)
def test_what_is_no_toml_is_an_error_with_file_and_line(tmp_path, content, message):
    file = tmp_path / "c.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=message) as caught:
        read_toml(file)
    assert str(file) in str(caught.value)
    assert caught.value.exit_code == 2
    assert isinstance(caught.value, Permanent)
    assert len(str(caught.value)) < 300 + len(str(file))


def test_a_missing_file_a_directory_and_a_loop_of_links_are_errors_that_say_why(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    for name, why in [("gone", "No such file"), (".", "directory"), ("loop", "symbolic links")]:
        with pytest.raises(ConfigError, match=f"cannot be read.*{why}"):
            read_toml(tmp_path / name)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_toml(tmp_path / "a\0b")
