"""Cache nodes: one of them reads each file in the store for all; no change gives other bytes."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from receiver.storage.reading.block_cache import BlockCache
from receiver.storage.reading.block_digests import packed_size
from receiver.storagenode.bucket_cache import BucketCache
from tests.support.cache_world import CacheNode, CacheReader, CacheWorld


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CacheWorld]:
    made = CacheWorld(tmp_path, monkeypatch)
    made.fill()
    yield made
    made.close()


def read_all(world: CacheWorld, reader: CacheReader | None = None) -> None:
    reader = reader or CacheReader(world)
    for physical, content in world.contents.items():
        assert reader.read(physical) == content


def store_bytes(world: CacheWorld) -> int:
    return sum(size for _, size in world.read_in_store)


def another(world: CacheWorld) -> CacheNode:
    """One more node, which has some of the files' slots; which ones it gets is by chance."""
    for _ in range(30):
        made = world.add(f"another-{len(world.nodes)}")
        world.beat()
        if made.name in world.owners().values():
            return made
    raise AssertionError("no slot of a file goes to nodes that come")


def test_of_all_who_read_one_node_comes_to_the_store(world: CacheWorld):
    for name in ("one", "two", "three"):
        world.add(name)
    world.beat()
    while len(set(world.owners().values())) < 2:
        another(world)
    read_all(world)
    once = store_bytes(world)
    assert sum(map(len, world.contents.values())) <= once < 1.01 * 6_200_000
    for _ in range(3):
        read_all(world)
    assert store_bytes(world) == once
    owners = set(world.owners().values())
    # Others too, where a slot moved as a node came: who had it before is asked for its bytes.
    assert {each.url for each in world.nodes if each.name in owners} <= set(world.asked)


def test_a_node_that_was_restarted_has_what_it_kept(world: CacheWorld):
    node = world.add("one")
    world.beat()
    read_all(world)
    before, there = store_bytes(world), node.kept
    assert len(there) > len(world.contents)
    node.restart()
    world.beat()
    read_all(world)
    assert (store_bytes(world), node.kept) == (before, there)


def test_what_has_rotted_on_its_disk_is_never_given_and_read_again(world: CacheWorld):
    node = world.add("one")
    world.beat()
    read_all(world)
    for number, each in enumerate(node.kept):
        content = bytearray(each.read_bytes())
        content[[0, 7, -1][number % 3]] ^= 1
        each.write_bytes(content if number % 4 else content[: number % 30])
    node.restart()
    world.beat()
    read_all(world)
    cache = node.served.node.cache
    assert cache is not None
    assert cache.blocks.rotten == len(node.kept)
    before = store_bytes(world)
    node.restart()
    world.beat()
    read_all(world)
    assert store_bytes(world) == before, "and is kept anew"


def test_blocks_of_another_file_under_its_name_are_not_believed(world: CacheWorld):
    node = world.add("one")
    world.beat()
    read_all(world)
    one, two = [each for each in node.kept if each.name.endswith("-0")][:2]
    one.write_bytes(two.read_bytes())
    node.restart()
    world.beat()
    read_all(world)


def test_a_cacheless_node_is_asked_by_nobody_and_becomes_a_cache_node_while_all_runs(
    world: CacheWorld,
):
    node = world.add("one", cache=False)
    world.beat()
    assert (world.version, world.owners()) == (0, {})
    read_all(world)
    assert world.asked == []
    node.restart(cache=True)
    world.beat()
    assert (world.version, set(world.owners().values())) == (1, {"one"})
    read_all(world)
    world.asked.clear()
    node.restart(cache=False)
    world.beat()
    assert (world.version, world.owners()) == (2, {})
    read_all(world)
    assert world.asked == []


def test_who_still_has_an_older_version_reads_on_and_hears_of_the_newer_one(world: CacheWorld):
    world.add("one")
    world.beat()
    reader = CacheReader(world)
    read_all(world, reader)
    two = another(world)
    assert world.version >= 2
    moved = [each for each, name in world.owners().items() if name == two.name]
    for physical, content in world.contents.items():
        world.asked.clear()
        assert reader.read(physical) == content
        assert world.asked[0] == "http://one.example.com", "who had the slot goes on"
    world.asked.clear()
    assert reader.read(moved[0]) == world.contents[moved[0]]
    assert world.asked[0] == two.url


def test_a_slot_that_moved_is_filled_from_who_had_it_and_not_from_the_store(world: CacheWorld):
    world.add("one")
    world.beat()
    read_all(world)
    before = store_bytes(world)
    two = another(world)
    read_all(world)
    assert store_bytes(world) == before
    cache = two.served.node.cache
    assert cache is not None
    assert cache.from_nodes > 0
    assert cache.from_store == 0


def test_who_had_the_slot_and_gives_other_bytes_is_not_believed(
    world: CacheWorld, monkeypatch: pytest.MonkeyPatch
):
    one, two, reader = lying(world, monkeypatch, b"")
    read_all(world, reader)
    assert one.blocks.rotten == 0
    assert two.from_nodes > 0, "it was asked"
    assert reader.store not in [store for store, _ in world.read_in_store]


def test_digests_of_who_had_the_slot_are_held_against_the_ticket(
    world: CacheWorld, monkeypatch: pytest.MonkeyPatch
):
    packed = packed_size(max(map(len, world.contents.values())))
    _, two, reader = lying(world, monkeypatch, b"\0" * packed)
    large = max(world.contents, key=lambda each: len(world.contents[each]))
    assert reader.read(large, 0, 10) == world.contents[large][:10]
    assert two.from_store < 2 << 20, "it need not be read whole for digests"


def lying(
    world: CacheWorld, monkeypatch: pytest.MonkeyPatch, digests: bytes
) -> tuple[BucketCache, BucketCache, CacheReader]:
    """A node that gives zeros to the one that has all of its slots now, and a reader."""
    one = world.add("one").served.node.cache
    world.beat()
    read_all(world)
    two = world.add("two", cache_bytes=1 << 50).served.node.cache
    world.beat()
    assert one is not None
    assert two is not None
    assert set(world.owners().values()) == {"two"}

    def lie(file: object, begin: int, length: int) -> bytes:
        return b"\0" * length if length else digests

    monkeypatch.setattr(one, "kept", lie)
    monkeypatch.setattr(world, "_must_be_right", lambda *_: None)
    return one, two, CacheReader(world)


def test_a_dead_node_costs_one_try_and_is_left_alone_for_a_while(world: CacheWorld):
    node = world.add("one")
    world.beat()
    read_all(world)
    node.stop()
    reader = CacheReader(world)
    world.asked.clear()
    read_all(world, reader)
    assert world.asked == [node.url]
    world.now += 61
    read_all(world, reader)
    assert world.owners() == {}, "and the master names it to nobody"
    node.start()
    world.beat()
    assert set(world.owners().values()) == {"one"}
    assert world.version == 1, "its slots stayed its own"
    world.now += 200
    read_all(world, reader)
    assert world.asked[-1] == node.url


def test_a_node_that_is_silent_for_long_is_forgotten_or_emptied_loses_its_slots(world: CacheWorld):
    one, two = world.add("one"), world.add("two")
    world.beat()
    version = world.version
    one.stop()
    world.now += 901
    two.beat()
    assert world.version == version + 1
    assert set(world.owners().values()) == {"two"}
    read_all(world)


def test_a_master_that_begins_anew_keeps_the_slots_as_they_were(world: CacheWorld):
    for name in ("one", "two"):
        world.add(name)
    world.beat()
    before, owners = world.version, world.owners()
    world.begin_anew()
    world.nodes[0].beat()
    assert world.version == before, "the other one was not heard yet"
    world.beat()
    assert (world.version, world.owners()) == (before, owners)


def test_a_full_disk_keeps_nothing_and_gives_all(world: CacheWorld):
    node = world.add("one")
    world.beat()
    cache = node.served.node.cache
    assert cache is not None
    cache.blocks._keep_free, cache.blocks._free = 1, lambda _: 0
    read_all(world)
    assert node.kept == []
    assert "is full" in node.served.node.concerns()[-1]
    cache.blocks._free, cache.blocks._rests_until = lambda _: 1 << 40, 0.0
    cache._memory = BlockCache(64 << 20)
    read_all(world)
    assert len(node.kept) > len(world.contents)
    assert not any("object store" in each for each in node.served.node.concerns())


def test_more_than_it_may_keep_goes_the_longest_unused_first(world: CacheWorld):
    node = world.add("one", cache_bytes=3 << 20)
    world.beat()
    for _ in range(2):
        read_all(world)
        assert sum(each.stat().st_size for each in node.kept) <= 3 << 20
    cache = node.served.node.cache
    assert cache is not None
    assert cache.blocks.used == sum(each.stat().st_size for each in node.kept)


@pytest.mark.parametrize("ticket", [None, "", "x", "0" * 32 + "." + "0" * 64 + ".e30"])
def test_nothing_is_given_without_a_ticket_of_the_master(world: CacheWorld, ticket: str | None):
    node = world.add("one")
    world.beat()
    headers = {} if ticket is None else {"Tsferry-Ticket": ticket}
    client = node.served.application.test_client()
    got = client.get("/node/v1/cached", query_string={"begin": 0, "length": 1}, headers=headers)
    assert got.status_code == 403


def test_a_ticket_opens_one_file_at_one_node_and_for_nothing_else(world: CacheWorld):
    one, two = world.add("one"), world.add("two")
    world.beat()
    for physical, content in world.contents.items():
        place = world.copies.slots.place(physical)
        assert place is not None
        for node in (one, two):
            client = node.served.application.test_client()
            headers = {"Tsferry-Ticket": place.ticket}
            query = {"begin": 3, "length": 5}
            got = client.get("/node/v1/cached", query_string=query, headers=headers)
            is_its = node.url == place.url
            assert got.status_code == (200 if is_its else 403)
            assert not is_its or got.data == content[3:8]
            query |= {"tablet": "a" * 32, "path": physical}
            assert client.get(
                "/node/v1/content", query_string=query, headers=headers
            ).status_code in (403, 404)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_to_nodes_each_read_is_what_was_uploaded(world: CacheWorld, seed: int):
    """Nodes come, go, rot, fill up and change their minds between reads of old and new readers."""
    chance = random.Random(seed)
    readers = [CacheReader(world) for _ in range(3)]
    for step in range(60):
        happens = chance.randrange(10)
        node = chance.choice(world.nodes) if world.nodes else None
        if happens == 0 and len(world.nodes) < 5:
            world.add(f"node{len(world.nodes)}", cache_bytes=chance.choice([16, 24, 64]) << 20)
        elif node is not None and happens == 1:
            node.restart(cache=chance.random() < 0.7)
        elif node is not None and happens == 2:
            node.stop()
        elif node is not None and happens == 3 and node.kept:
            rotten = chance.choice(node.kept)
            rotten.write_bytes(rotten.read_bytes()[: chance.randrange(40)])
        elif happens == 4:
            world.now += chance.choice([5, 40, 130, 1000])
        elif happens == 5:
            world.begin_anew()
        elif happens == 6:
            world.beat()
        reader = chance.choice(readers)
        physical, content = chance.choice(list(world.contents.items()))
        begin = chance.randrange(len(content))
        length = chance.randrange(len(content) - begin + 1)
        assert reader.read(physical, begin, length) == content[begin : begin + length], step


@pytest.mark.slow
def test_who_reads_while_slots_move_reads_what_was_uploaded(world: CacheWorld):
    changed, wrong = threading.Condition(), list[str]()
    reads, ended = [0, 0, 0], threading.Event()

    def go_on(number: int) -> None:
        reader, chance = CacheReader(world), random.Random(number)
        while not ended.is_set():
            physical, content = chance.choice(list(world.contents.items()))
            begin = chance.randrange(len(content))
            expected = content[begin : begin + (2 << 20)]
            if reader.read(physical, begin, len(expected)) != expected:
                wrong.append(physical)
            with changed:
                reads[number] += 1
                changed.notify_all()

    threads = [threading.Thread(target=go_on, args=(each,)) for each in range(len(reads))]
    for each in threads:
        each.start()
    try:
        for step in range(8):
            seen = [*reads]
            if step < 4:
                world.add(f"node{step}", cache_bytes=(step + 16) << 20)
            else:
                world.nodes[step - 4].restart(cache=bool(step % 2))
            world.now += 200
            world.beat()
            with changed:
                assert changed.wait_for(
                    lambda: all(now > then + 1 for now, then in zip(reads, seen, strict=True)),  # noqa: B023
                    60,
                )
    finally:
        ended.set()
        for each in threads:
            each.join()
    assert wrong == []
    assert world.version >= 6
