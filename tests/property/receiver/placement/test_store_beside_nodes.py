"""What edges were told stays true, where masters have nodes and an object store beside them.

See `tests.support.store_beside_nodes`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.support import tiers
from tests.support.store_beside_nodes import StoreBesideNodes


@pytest.mark.slow
def test_what_edges_were_told_is_true_whichever_of_disk_nodes_and_bucket_loses_it() -> None:
    run_state_machine_as_test(
        StoreBesideNodes,
        settings=settings(
            max_examples=tiers.examples(6),
            stateful_step_count=30,
            deadline=None,
            phases=(Phase.explicit, Phase.reuse, Phase.generate),  # to shrink one takes minutes
        ),
    )


@pytest.fixture
def centre() -> Iterator[StoreBesideNodes]:
    it = StoreBesideNodes()
    it.begin()
    yield it
    it.there.close()
    shutil.rmtree(it.root)


@pytest.mark.parametrize("is_stored", [False, True])
def test_what_the_bucket_lacks_comes_from_a_node_to_who_works_on_it(
    centre: StoreBesideNodes, is_stored: bool
) -> None:
    """Red where a store in the configuration hides what nodes have: it was not there yet, or is
    lost.
    """
    centre.all_goes_well_for_a_while(0, "root.wind", False)
    master = centre.storing[0]
    if is_stored:
        master.copy()
        centre.files_leave_the_disks_of_a_master(0)
    path = min(centre.loaded)
    row = centre._row(master, path)
    assert row is not None
    for place in [*centre._objects(path), master.world.data / row.physical]:
        place.unlink(missing_ok=True)
    assert master.fetched(row) == centre.contents[path]


@pytest.mark.parametrize("is_stored", [False, True])
def test_what_a_store_has_that_was_not_reached_yet_comes_from_a_node(
    centre: StoreBesideNodes, is_stored: bool
) -> None:
    centre.all_goes_well_for_a_while(0, "root.wind", False)
    if is_stored:
        centre.storing[0].copy()
    centre.the_bucket_is_away_or_comes_back()
    centre.a_master_begins_anew(0, own=False)
    centre.all_go_on(1)
    path, master = min(centre.loaded), centre.storing[0]
    row = centre._row(master, path)
    assert row is not None
    assert master.fetched(row) == centre.contents[path]
