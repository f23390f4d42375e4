"""Uploads as tus 1.0 has them, on a real node."""

import base64
import hashlib

import pytest

from common.digests import xxh3_64, xxh3_128
from receiver.operator.edges.tokens import make_token
from receiver.web.app import site_of
from receiver.web.handlers import tus_headers
from tests.support.node_world import A, B, path_of, tsfile
from tests.unit.receiver.web.conftest import BLOCK, TUS

FILES = "/sync/v1/files"
PATH, CONTENT = path_of(1), tsfile(points=500)
SIZE = len(CONTENT)
MD5 = hashlib.md5(CONTENT)


def b64(data: bytes | str) -> str:
    return base64.b64encode(data.encode() if isinstance(data, str) else data).decode()


def metadata(**pairs: str) -> dict[str, str]:
    return {"Upload-Metadata": ",".join(f"{key} {b64(value)}" for key, value in pairs.items())}


def create(client, length=SIZE, *, data=None, headers=TUS, **pairs):
    given = headers | {"Upload-Length": str(length)} | metadata(**({"path": PATH} | pairs))
    return client.post(FILES, data=data, headers=given | (BLOCK if data is not None else {}))


def patch(client, where, offset, data, **more):
    headers = TUS | BLOCK | {"Upload-Offset": str(offset)} | more
    return client.patch(where, data=data, headers=headers)


@pytest.fixture
def where(client):
    answer = create(client)
    assert answer.status_code == 201
    return answer.headers["Location"]


def test_a_file_in_two_blocks_is_loaded_when_the_last_is_answered(client, where, world):
    first = patch(client, where, 0, CONTENT[:1000])
    assert first.status_code == 204
    assert first.headers["Upload-Offset"] == "1000"
    assert first.headers["Upload-Expires"].endswith("GMT")
    last = patch(client, where, 1000, CONTENT[1000:])
    assert last.status_code == 204
    assert last.headers["Upload-Offset"] == str(len(CONTENT))
    assert list(world.loaded().values()) == [CONTENT]


def test_the_location_is_a_path_that_holds_behind_any_proxy(where):
    assert where.startswith(f"{FILES}/")
    assert len(where.rpartition("/")[2]) == 32


def test_head_says_where_to_go_on(client, where):
    patch(client, where, 0, CONTENT[:700])
    answer = client.head(where, headers=TUS)
    assert answer.status_code == 200
    assert answer.headers["Upload-Offset"] == "700"
    assert answer.headers["Upload-Length"] == str(len(CONTENT))
    assert answer.headers["Cache-Control"] == "no-store"
    told = tus_headers.metadata(answer.headers["Upload-Metadata"])
    assert told["path"] == PATH
    assert told["size"] == str(len(CONTENT))


def test_the_first_bytes_may_come_with_the_creation(client, world):
    answer = create(client, data=CONTENT[:10])
    assert answer.status_code == 201
    assert answer.headers["Upload-Offset"] == "10"
    patch(client, answer.headers["Location"], 10, CONTENT[10:])
    assert list(world.loaded().values()) == [CONTENT]


def test_a_whole_file_may_come_with_the_creation(client, world):
    answer = create(client, data=CONTENT, md5=MD5.hexdigest())
    assert answer.status_code == 201
    assert answer.headers["Upload-Offset"] == str(len(CONTENT))
    assert list(world.loaded().values()) == [CONTENT]


@pytest.mark.parametrize("offset", [10, len(CONTENT), len(CONTENT) + 1])
def test_another_offset_is_a_conflict_that_says_where(client, where, offset):
    answer = patch(client, where, offset, b"x")
    assert answer.status_code == 409
    assert answer.get_json(force=True)["offset"] == 0


@pytest.mark.parametrize("offset", ["-1", "x", str(2**63), "9" * 5000, ""])
def test_an_offset_that_is_none_is_refused(client, where, offset):
    assert patch(client, where, offset, b"x").status_code == 400


def test_a_block_beyond_the_end_is_refused(client, where):
    assert patch(client, where, 0, CONTENT + b"x").status_code == 413


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("sha1", lambda data: hashlib.sha1(data).digest()),
        ("md5", lambda data: hashlib.md5(data).digest()),
        ("xxh3_128", xxh3_128),
    ],
)
def test_each_checksum_is_checked(client, where, name, digest):
    block = CONTENT[:500]
    wrong = {"Upload-Checksum": f"{name} {b64(digest(b'other'))}"}
    answer = patch(client, where, 0, block, **wrong)
    assert answer.status_code == 460
    assert answer.get_json(force=True)["type"] == "urn:tsferry:digest-mismatch"
    assert client.head(where, headers=TUS).headers["Upload-Offset"] == "0"
    right = {"Upload-Checksum": f"{name} {b64(digest(block))}"}
    assert patch(client, where, 0, block, **right).status_code == 204


def test_an_unknown_checksum_is_refused(client, where):
    answer = patch(client, where, 0, b"x", **{"Upload-Checksum": "crc32 AAAA"})
    assert answer.status_code == 400
    assert "xxh3_128" in answer.get_json(force=True)["detail"]


def test_a_bad_checksum_at_the_creation_leaves_nothing(client, node, world):
    bad = TUS | {"Upload-Checksum": f"md5 {b64(b'0' * 16)}"}
    assert create(client, data=CONTENT[:10], headers=bad).status_code == 460
    unknown = TUS | {"Upload-Checksum": "crc32 AAAA"}
    assert create(client, data=CONTENT[:10], headers=unknown).status_code == 400
    assert node.uploads.numbers() == (0, 0)
    assert not list(world.root.rglob("*.part"))


WRONG = {"Upload-Checksum": f"xxh3_128 {b64(xxh3_128(b'other'))}"}


@pytest.mark.parametrize("offset", [10, SIZE, SIZE + 1])
def test_a_bad_block_is_told_before_its_wrong_offset(client, where, offset):
    assert patch(client, where, offset, b"x", **WRONG).status_code == 460
    assert patch(client, where, 0, CONTENT + b"x", **WRONG).status_code == 460


def test_a_bad_block_of_no_upload_is_told_as_bad(client, where):
    assert patch(client, f"{FILES}/{'0' * 32}", 0, b"x", **WRONG).status_code == 460
    patch(client, where, 0, CONTENT)
    assert patch(client, where, SIZE, b"x", **WRONG).status_code == 460


def test_a_bad_block_is_told_before_other_headers_and_after_its_own(client, where, node):
    odd = {"Repr-Digest": "md5"}
    assert patch(client, where, 0, b"x", **WRONG, **odd).status_code == 460
    assert patch(client, where, 0, b"x", **odd).status_code == 400
    assert create(client, data=b"x", headers=TUS | WRONG, path="\0").status_code == 460
    assert patch(client, where, "x", b"x", **WRONG).status_code == 400
    other = {"Content-Type": "text/plain"}
    assert patch(client, where, 0, b"x", **WRONG, **other).status_code == 415
    unknown = {"Upload-Checksum": "crc32 AAAA"}
    assert patch(client, where, 0, b"x", **unknown, **other).status_code == 400
    assert node.uploads.numbers() == (1, 0)


def test_a_body_that_ends_early_counts_nothing(client, where, node):
    right = {"Upload-Checksum": f"xxh3_128 {b64(xxh3_128(CONTENT[:500]))}"}
    for checksum in ({}, right):
        headers = TUS | BLOCK | {"Upload-Offset": "0"} | checksum
        broken = {"data": CONTENT[:500], "environ_overrides": {"CONTENT_LENGTH": "600"}}
        assert client.patch(where, headers=headers, **broken).status_code == 400
        headers |= {"Upload-Length": str(SIZE)} | metadata(path=PATH)
        assert client.post(FILES, headers=headers, **broken).status_code == 400
    assert node.uploads.numbers() == (1, 0)


def test_a_block_of_megabytes_with_a_checksum_counts_as_one(client, world):
    block = CONTENT * (9 * 2**20 // SIZE)
    where = create(client, 30 * 2**20).headers["Location"]
    assert patch(client, where, 0, block, **WRONG).status_code == 460
    assert client.head(where, headers=TUS).headers["Upload-Offset"] == "0"
    right = {"Upload-Checksum": f"xxh3_128 {b64(xxh3_128(block))}"}
    assert patch(client, where, 0, block, **right).headers["Upload-Offset"] == str(len(block))
    (log,) = world.root.rglob("*.upload")
    assert len(log.read_bytes().splitlines()) == 2
    assert patch(client, where, len(block), block).status_code == 204
    assert len(log.read_bytes().splitlines()) == 5
    (part,) = world.root.rglob("*.part")
    assert part.read_bytes() == block * 2


@pytest.mark.parametrize("name", ["xxh3_128", "sha1", None])
def test_the_line_of_a_block_is_that_of_its_bytes_whatever_its_checksum_was(client, world, name):
    where = create(client).headers["Location"]
    blocks, at = [CONTENT[:100], CONTENT[100:900]], 0
    for block in blocks:
        digest_of = tus_headers.ALGORITHMS[name] if name else None
        said = {"Upload-Checksum": f"{name} {b64(digest_of(block))}"} if digest_of else {}
        assert patch(client, where, at, block, **said).status_code == 204
        at += len(block)
    (log,) = world.root.rglob("*.upload")
    lines = [f"0 100 {xxh3_64(blocks[0])}", f"100 800 {xxh3_64(blocks[1])}"]
    assert log.read_text().splitlines()[1:] == lines


def test_a_checksum_of_no_bytes_is_checked(client, where):
    assert patch(client, where, 0, b"", **WRONG).status_code == 460
    right = {"Upload-Checksum": f"xxh3_128 {b64(xxh3_128(b''))}"}
    assert patch(client, where, 0, b"", **right).status_code == 204
    assert create(client, data=b"", headers=TUS | WRONG).status_code == 460
    assert create(client, data=b"", headers=TUS | right).status_code == 201


def test_a_digest_of_the_file_that_does_not_match_drops_it(client, where, world):
    wrong = {"Repr-Digest": f"md5=:{b64(hashlib.md5(b'other').digest())}:"}
    answer = patch(client, where, 0, CONTENT, **wrong)
    assert answer.status_code == 422
    assert answer.get_json(force=True)["type"] == "urn:tsferry:digest-mismatch"
    assert client.head(where, headers=TUS).status_code in (404, 410)
    assert not world.loaded()


def test_a_digest_of_the_file_that_matches(client, where, world):
    patch(client, where, 0, CONTENT, **{"Repr-Digest": f"md5=:{b64(MD5.digest())}:"})
    assert list(world.loaded().values()) == [CONTENT]


def test_what_is_no_tsfile_is_told_so(client):
    answer = create(client, 5)
    answer = patch(client, answer.headers["Location"], 0, b"hello")
    assert answer.status_code == 422
    assert answer.get_json(force=True)["type"] == "urn:tsferry:not-a-tsfile"


def test_an_upload_can_be_given_up(client, where):
    assert client.delete(where, headers=TUS).status_code == 204
    assert client.head(where, headers=TUS).status_code in (404, 410)
    assert client.delete(where, headers=TUS).status_code in (404, 410)


def test_an_upload_expires(client, where, node, clock, world):
    clock.now += world.config.limits.upload_expiry + 1
    node.uploads.expire(clock.now)
    assert patch(client, where, 0, b"x").status_code in (404, 410)


@pytest.mark.parametrize("version", [None, "0.2.2", "2.0.0", "1.0.0, 1.0.0"])
def test_another_version_of_tus_is_refused_with_ours(client, where, version):
    headers = {k: v for k, v in TUS.items() if k != "Tus-Resumable"}
    headers |= {} if version is None else {"Tus-Resumable": version}
    answer = client.head(where, headers=headers)
    assert answer.status_code == 412
    assert answer.headers["Tus-Version"] == "1.0.0"
    assert answer.headers["Tus-Resumable"] == "1.0.0"


def test_options_needs_no_token_and_no_version(make_app):
    client = make_app(require="always").test_client()
    answer = client.options(FILES)
    assert answer.status_code == 204
    assert answer.headers["Tus-Checksum-Algorithm"] == "sha1,md5,xxh3_128"
    assert int(answer.headers["Tus-Max-Size"]) > 0
    assert "creation-with-upload" in answer.headers["Tus-Extension"].split(",")
    assert client.options(f"{FILES}/{'0' * 32}").status_code == 204


@pytest.mark.parametrize("method", ["PATCH", "DELETE", "HEAD"])
def test_the_method_may_stand_in_a_header(client, where, method):
    headers = TUS | BLOCK | {"X-HTTP-Method-Override": method, "Upload-Offset": "0"}
    answer = client.post(where, data=b"abc" if method == "PATCH" else b"", headers=headers)
    assert answer.status_code == (200 if method == "HEAD" else 204)


def test_the_method_of_other_calls_stands_in_no_header(client):
    answer = client.post("/healthz", headers={"X-HTTP-Method-Override": "GET"})
    assert answer.status_code == 405


@pytest.mark.parametrize("name", ["Upload-Defer-Length", "Upload-Concat"])
def test_what_is_not_supported_is_refused_and_named(client, name):
    headers = TUS | {name: "1"} | metadata(path=PATH)
    answer = client.post(FILES, headers=headers)
    assert answer.status_code == 400
    assert name in answer.get_json(force=True)["detail"]


@pytest.mark.parametrize("length", ["", "-1", "x", "9" * 5000, str(2**63)])
def test_a_length_that_is_none_is_refused(client, length):
    assert create(client, length).status_code == 400


def test_a_file_that_is_too_large_is_refused(client, world):
    answer = create(client, world.config.limits.max_file_bytes + 1)
    assert answer.status_code == 413


@pytest.mark.parametrize(
    "path",
    ["../../etc/x", "..", "", "/abs", "..\\..\\x", "a\0b", "x" * 256, "y" * 5000, "a\r\nb",
     "\x1b[31m", "sync.log", "uuid.txt", "sequence/root.sg/0/0/‮x.tsfile",
     "sequence/root.sg/0/0/x.tmp"],
)  # fmt: skip
def test_a_path_that_leads_anywhere_else_is_refused(client, world, path):
    assert create(client, path=path).status_code == 400
    assert not world.loaded()


def test_another_media_type_is_refused(client, where):
    answer = patch(client, where, 0, b"x", **{"Content-Type": "application/octet-stream"})
    assert answer.status_code == 415


def test_an_upload_belongs_to_the_token_that_made_it(app, client):
    engine = site_of(app).node.engine
    mine, other, foreign = (
        {"Authorization": f"Bearer {make_token(engine, 'sender', sender=uuid).token}"}
        for uuid in (A, A, B)
    )
    bare = {"Tus-Resumable": "1.0.0"}
    where = create(client, headers=bare | mine).headers["Location"]
    assert client.head(where, headers=bare | mine).status_code == 200
    for headers in (other, foreign, {"Authorization": "Bearer wrong"}, {}):
        assert client.head(where, headers=bare | headers).status_code in (401, 403)
        assert client.delete(where, headers=bare | headers).status_code in (401, 403)


def test_without_tokens_an_upload_belongs_to_its_sender(client, where):
    assert client.head(where, headers=TUS | {"Tsferry-Sender": B}).status_code == 403


@pytest.mark.parametrize("name", ["x", "0" * 32, "..%2f..", "%00", "a" * 5000])
def test_an_upload_that_is_not_there(client, name):
    assert client.head(f"{FILES}/{name}", headers=TUS).status_code == 404


@pytest.mark.parametrize("fault", ["checksum", "too long", "too large"])
def test_an_upload_whose_first_bytes_are_refused_is_not_left_behind(client, node, world, fault):
    """Its client was never told where it is."""
    more = {}
    data, length = CONTENT[:100], SIZE
    if fault == "checksum":
        more = {"Upload-Checksum": f"md5 {b64(hashlib.md5(b'other').digest())}"}
    elif fault == "too long":
        data, length = CONTENT, SIZE - 1
    else:
        length = data_length = node.config.limits.max_chunk_bytes + 1
        data = bytes(data_length)
    answer = create(client, length, data=data, headers=TUS | more)
    assert answer.status_code in (413, 460)
    assert node.uploads.numbers() == (0, 0)
    assert list((world.data / "sync-receiver").glob("*/data/.uploads/*")) == []
