"""URLs of stores."""

import pytest

from common.errors import ConfigError
from receiver.storage.stores.store_opening import open_store


def test_a_directory_is_opened(tmp_path):
    (tmp_path / "with space").mkdir()
    with_space = open_store((tmp_path / "with space").as_uri())
    with_space.put("a", b"1")
    assert (tmp_path / "with space" / "a").read_bytes() == b"1"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "file:store",
        "file:/store",
        "file://host/store",
        "file:///",
        "ftp://x/y",
        "s3:x",
        "s3:///x",
        "s3://[",
    ],
)
def test_what_is_no_store_is_said(url):
    with pytest.raises(ConfigError, match="expected s3://bucket/prefix or file:///directory"):
        open_store(url)


@pytest.mark.parametrize("prefix", ["a//b", "../a", "a/./b", "a/.."])
def test_a_prefix_that_no_key_can_have_is_refused(prefix):
    with pytest.raises(ConfigError, match="no part of the prefix"):
        open_store(f"s3://bucket/{prefix}")


@pytest.mark.parametrize(
    "url", ["s3://user:secret@bucket/x", "s3://bucket/x?key=secret", "file:///x#secret"]
)
def test_what_else_a_url_has_is_refused_and_not_repeated(url):
    with pytest.raises(ConfigError, match="environment") as error:
        open_store(url)
    assert "secret" not in error.value.message


@pytest.mark.parametrize("url", ["gs://bucket/x", "az://container/x", "abfss://c@account/x"])
def test_a_store_of_another_kind_is_refused_with_the_reason_and_the_way_out(url):
    with pytest.raises(ConfigError, match=r"not supported: .* use a store that speaks S3") as error:
        open_store(url)
    assert "storage check" in error.value.message
