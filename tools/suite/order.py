"""In which order the workers of a run take the files of the tests."""

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath


def mixed(files: Sequence[PurePath]) -> list[int]:
    """Where each test runs that has its file in `files`: indexes of `files`, in a new order.

    Tests over the wire wait most of the time, unit tests compute all of it. Run folder by folder,
    all workers compute first and then wait together; so each folder of tests is spread evenly over
    the run. The tests of a file stay together, in their order: they share fixtures.
    """
    tests = Counter(_folder(file) for file in files)
    begins: dict[PurePath, float] = {}
    before: Counter[str] = Counter()
    for file in files:
        folder = _folder(file)
        begins.setdefault(file, before[folder] / tests[folder])
        before[folder] += 1
    return sorted(range(len(files)), key=lambda index: (begins[files[index]], files[index]))


def _folder(file: PurePath) -> str:
    return "/".join(file.parts[:2])
