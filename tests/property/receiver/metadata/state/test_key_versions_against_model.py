from hypothesis import given, settings
from hypothesis import strategies as st

from receiver.metadata.model.records import KeysWritten
from receiver.metadata.state.key_versions import KeyTable
from tests.support import tiers

KEYS = st.text("ab/", min_size=1, max_size=3)
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("commit"),
            st.lists(st.text("ab/", max_size=2), max_size=2),
            st.dictionaries(KEYS, st.sampled_from("xyz"), max_size=3),
        ),
        st.tuples(st.just("collect"), st.integers(0, 30), st.integers(1, 5)),
        st.tuples(st.just("thaw")),
    ),
    max_size=30,
)


@given(STEPS)
@settings(max_examples=tiers.examples(200))
def test_the_table_answers_as_a_list_of_whole_dictionaries(steps):
    table = KeyTable()
    states = [(0, {})]
    horizon = 0
    for step in steps:
        if step[0] == "commit":
            _, removals, saves = step
            ts, state = states[-1]
            kept = {k: v for k, v in state.items() if not k.startswith(tuple(removals) or ("\0",))}
            table.apply(KeysWritten(tuple(removals), saves), ts + 2)
            states.append((ts + 2, kept | saves))
        elif step[0] == "collect":
            horizon = max(horizon, min(step[1], states[-1][0]))
            while table.collect(horizon, step[2]) == step[2]:
                pass
        else:
            table = KeyTable.thaw(dict(table.freeze().sections()))
        newest = states[-1][1]
        assert table.load_with_prefix("") == (sorted(newest), [newest[k] for k in sorted(newest)])
        assert len(table) == len(newest)
    for ts in range(horizon, states[-1][0] + 2):
        state = [state for at, state in states if at <= ts][-1]
        for prefix in ("", "a", "a/", "b"):
            keys = sorted(key for key in state if key.startswith(prefix))
            assert table.load_with_prefix(prefix, ts) == (keys, [state[key] for key in keys])
        assert all(table.load(key, ts) == state.get(key) for key in ("a", "b", "ab", "/"))
    # What is kept is what can be asked for: nothing else.
    table.collect(10**9)
    assert table.versions == len(states[-1][1])
