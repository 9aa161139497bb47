"""SharedMap against a dictionary: same contents after any changes, older copies untouched."""

from hypothesis import given
from hypothesis import strategies as st

from odradek.metadata.shared_map import SharedMap

_KEYS = st.integers(-600, 600)
_CHANGES = st.lists(st.tuples(st.dictionaries(_KEYS, st.integers()), st.lists(_KEYS)))


@given(_CHANGES)
def test_behaves_like_a_dictionary(changes: list[tuple[dict[int, int], list[int]]]) -> None:
    """A lost or doubled entry would be a lost or doubled topic."""
    model: dict[int, int] = {}
    shared: SharedMap[int, int] = SharedMap()
    history = []
    for put, removed in changes:
        history.append((shared, dict(model)))
        for key in removed:
            model.pop(key, None)
        model.update(put)
        shared = shared.replaced(put, removed)
        assert dict(shared) == model
        assert len(shared) == len(model)
    assert all(dict(older) == expected for older, expected in history)
