import pytest

from common.errors import ReadOnlyError
from receiver.metadata.engine import Engine
from receiver.metadata.etcd.gateway import EtcdClient
from receiver.metadata.etcd.messages import Get
from receiver.metadata.kv.embedded import EmbeddedKV
from receiver.metadata.kv.opening import open_kv
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.model.errors import HistoryGoneError, KeyMissingError


@pytest.fixture
def engine(tmp_path):
    options = EngineOptions(history=0.0, history_commits=3, kv_ring=2)
    with Engine.open(tmp_path / "schema", options=options, background=False) as engine:
        yield engine


def test_keys_are_in_the_log_of_the_engine_unless_etcd_is_named(engine, shared_etcd):
    settings = shared_etcd.settings()
    here, there = open_kv(engine), open_kv(engine, settings)
    here.save("a", "here")
    there.save("a", "there")
    assert (here.load("a"), there.load("a")) == ("here", "there")
    assert isinstance(here, EmbeddedKV)
    client = EtcdClient(settings)
    key = f"{settings.prefix}/keys/kv/a".encode()
    assert client.get(Get(key)).keys[0].value == b"there"
    client.close()
    here.close()
    there.close()
    there.close()


def test_below_the_kept_history_the_answer_is_an_error_with_the_oldest_time(engine):
    kv = open_kv(engine)
    times = [kv.save("a", str(number)) for number in range(10)]
    engine.collect()
    oldest = engine.oldest_answerable
    assert times[0] < oldest < times[-1]
    with pytest.raises(HistoryGoneError) as caught:
        kv.load("a", times[0])
    assert caught.value.extra["oldest"] == oldest
    with pytest.raises(HistoryGoneError):
        kv.load_with_prefix("", times[0])
    assert kv.load("a", oldest) == str(times.index(oldest))
    with engine.reading() as state:
        assert state.keys.versions <= 5


def test_keys_and_their_history_are_in_a_checkpoint(tmp_path):
    with Engine.open(tmp_path / "schema", background=False) as engine:
        kv = open_kv(engine)
        first = kv.multi_save({"a": "1", "b": "2"})
        second = kv.multi_save_and_remove_with_prefix({"a": "3"}, ["b"])
        engine.checkpoint()
    with Engine.open(tmp_path / "schema", background=False) as engine:
        kv = open_kv(engine)
        assert kv.load_with_prefix("", first) == (["a", "b"], ["1", "2"])
        assert kv.load_with_prefix("", second) == (["a"], ["3"])
        with pytest.raises(KeyMissingError):
            kv.load("b")


def test_the_engine_hands_out_its_own_store_for_reading_beside_a_server_too(engine, tmp_path):
    first = EmbeddedKV(engine).save("a", "1")
    second = EmbeddedKV(engine).multi_save({"a": "2"}, lambda ts: ("a/at", str(ts)))
    assert EmbeddedKV(engine).load("a") == "2"
    with Engine.read_only(tmp_path / "schema") as beside:
        kv = EmbeddedKV(beside)
        assert (kv.load("a", first), kv.load("a/at")) == ("1", str(second))
        with pytest.raises(ReadOnlyError):
            kv.save("a", "3")
