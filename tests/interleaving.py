"""Threads that take turns as a test says, so that interleavings can be searched and repeated.

Only one of the threads runs at a time. It may hand on wherever a function begins and where a call
of a built-in one has ended, which is where CPython may hand its lock on (besides jumps back); a
profile function is called at those places and counts them. What a test says are the counts
after which the next thread goes on.
"""

import itertools
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from types import FrameType

from odradek import purgatory, timer

Work = Callable[[], object]

# Nowhere else: a thread that stopped inside of a lock of the library would stop them all.
WATCHED = (str(Path(timer.__file__).parent), str(Path(purgatory.__file__).parent))
PLACES = ("call", "c_return")


class Turns:
    """Runs some works, each on a thread of its own, one at a time.

    `counts`: after how many places the present thread hands on to the next, again and again;
    when they are used up a thread runs until its work is done.
    """

    def __init__(self, counts: Sequence[int], watched: tuple[str, ...]) -> None:
        self._counts: Iterator[int] = iter(counts)
        self._watched = watched
        self._left = next(self._counts, sys.maxsize)
        self._gates: list[threading.Semaphore] = []
        self._living: list[int] = []
        self.interruptions = 0

    def run(self, pool: Executor, *works: Work) -> None:
        """Returns when all are done; raises what one of them raised.

        The pool must have a thread for each.
        """
        self._gates = [threading.Semaphore(0) for _ in works]
        self._living = list(range(len(works)))
        futures = [pool.submit(self._live, *each) for each in enumerate(works)]
        self._gates[0].release()
        for future in futures:
            future.result()

    def _live(self, number: int, work: Work) -> None:
        self._gates[number].acquire()
        sys.setprofile(lambda frame, event, argument: self._on_place(number, frame, event))
        try:
            work()
        finally:
            sys.setprofile(None)
            following = self._after(number)
            self._living.remove(number)
            if self._living:
                self._gates[following].release()

    def _after(self, number: int) -> int:
        position = self._living.index(number) + 1
        return self._living[position % len(self._living)]

    def _on_place(self, number: int, frame: FrameType, event: str) -> None:
        if event not in PLACES or not frame.f_code.co_filename.startswith(self._watched):
            return
        self._left -= 1
        if self._left > 0:
            return
        self._left = next(self._counts, sys.maxsize)
        following = self._after(number)
        if following != number:
            self.interruptions += 1
            self._gates[following].release()
            self._gates[number].acquire()


def take_turns(counts: Sequence[int], watched: tuple[str, ...], *works: Work) -> None:
    """Runs the works on threads of their own, in the order that the counts say."""
    with ThreadPoolExecutor(len(works)) as pool:
        Turns(counts, watched).run(pool, *works)


def every_interleaving(
    prepare: Callable[[], tuple[Work, Work, Work]], watched: tuple[str, ...]
) -> None:
    """Tries all orders of two works in which each is interrupted once.

    `prepare` makes them anew for each, and what looks at the outcome when both are done.
    """
    with ThreadPoolExecutor(2) as pool:
        for first in itertools.count(1):
            for second in itertools.count(1):
                one, other, look = prepare()
                turns = Turns([first, second], watched)
                turns.run(pool, one, other)
                look()
                if turns.interruptions < 2:
                    break
            if turns.interruptions < 1:
                break
