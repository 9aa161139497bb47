"""Carries out long requests some items at a time, and the loop turns in between.

Each slice is a separate change: planned on the image after the one before it, stored, and shown to
clients. So the work of every listener for a change is bounded as well, and other changes have their
turns. The rules for a request as a whole still hold: an item that it names more than once is
refused wherever it stands, and an item that has to wait, for a leader or for its deletion, does not
delay the others.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Final, Generic, TypeAlias, TypeVar

R = TypeVar("R")
Item = TypeVar("Item")

OnSlice: TypeAlias = Callable[[Iterable[R]], None]
"""Takes the results of a slice."""
Defer: TypeAlias = Callable[[Callable[[], None]], None]
"""Does something when the loop has turned."""
Sync: TypeAlias = Callable[[Callable[[object], None]], None]
"""Calls back when what was begun before has taken effect."""

SLICE_ITEMS: Final = 500


def _never(_go_on: Callable[[object], None]) -> None:
    """Leaves it to the results."""


def _one(_item: object) -> int:
    return 1


def slice_by_slice(
    items: Sequence[Item],
    begin: Callable[[Sequence[Item], OnSlice[R]], None],
    on_done: Callable[[list[R]], None],
    defer: Defer | None,
    sync: Sync = _never,
    weigh: Callable[[Item], int] = _one,
) -> None:
    """Calls `begin` with some of the items, and with more when their results are there, or `sync`
    has called back; then calls `on_done` with all results, in order. Without `defer` all items are
    one slice. `weigh` gives the weight of an item in a slice."""
    if defer is None:
        begin(items, lambda results: on_done(list(results)))
    else:
        _Slices(items, begin, on_done, defer, sync, weigh).begin_slice(0)


def distinct_by_slices(
    items: Sequence[Item],
    identity: Callable[[Item], object],
    begin: Callable[[frozenset[object], Sequence[Item], OnSlice[R]], None],
    on_done: Callable[[list[R]], None],
    defer: Defer | None,
    sync: Sync = _never,
    weigh: Callable[[Item], int] = _one,
) -> None:
    """Like `slice_by_slice`; `begin` also gets the identities that occur more than once among all
    items."""

    def identify(some: Sequence[Item], on_some: OnSlice[object]) -> None:
        on_some([identity(each) for each in some])

    def begin_all(identities: list[object]) -> None:
        repeated = frozenset(each for each, count in Counter(identities).items() if count > 1)
        slice_by_slice(items, partial(begin, repeated), on_done, defer, sync, weigh)

    slice_by_slice(items, identify, begin_all, defer)


class _Slices(Generic[Item, R]):
    """The slices of a long request. They begin one after another; results may come in any order."""

    def __init__(
        self,
        items: Sequence[Item],
        begin: Callable[[Sequence[Item], OnSlice[R]], None],
        on_done: Callable[[list[R]], None],
        defer: Defer,
        sync: Sync,
        weigh: Callable[[Item], int],
    ) -> None:
        self._items: Final = items
        self._begin: Final = begin
        self._on_done: Final = on_done
        self._defer: Final = defer
        self._sync: Final = sync
        self._weigh: Final = weigh
        self._results: Final[dict[int, list[R]]] = {}
        self._begun_items = 0
        self._last_asked_for = 0

    @property
    def _all_begun(self) -> bool:
        return self._begun_items == len(self._items)

    def begin_slice(self, index: int) -> None:
        some = self._next_items()
        self._begun_items += len(some)
        self._begin(some, partial(self._on_slice, index))
        if index == self._last_asked_for and not self._all_begun:
            self._sync(lambda _: self._go_on(index + 1))

    def _next_items(self) -> Sequence[Item]:
        start = end = self._begun_items
        weight = 0
        while end < len(self._items) and weight < SLICE_ITEMS:
            weight += max(self._weigh(self._items[end]), 1)
            end += 1
        return self._items[start:end]

    def _on_slice(self, index: int, results: Iterable[R]) -> None:
        self._results[index] = list(results)
        if not self._all_begun:
            self._go_on(index + 1)
        elif len(self._results) == self._last_asked_for + 1:
            each_slice = [self._results[each] for each in range(len(self._results))]
            self._on_done(list(chain.from_iterable(each_slice)))

    def _go_on(self, index: int) -> None:
        """Begins the next slice, once; results and `sync` both call this."""
        if index > self._last_asked_for:
            self._last_asked_for = index
            self._defer(partial(self.begin_slice, index))
