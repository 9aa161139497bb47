"""The order in which workers take the files: mixed by folder, each file in one piece."""

from itertools import groupby
from pathlib import PurePath

from tools.suite.order import mixed

UNIT = [PurePath("tests/unit/timer/test_wheel.py")] * 2 + [
    PurePath("tests/unit/test_clocks.py")
] * 4
WIRE = [PurePath("tests/wire/test_fetch.py"), PurePath("tests/wire/test_groups.py")]


def test_each_folder_of_tests_is_spread_over_the_run() -> None:
    """All workers compute first and wait together afterwards: processors idle for minutes."""
    files = UNIT + WIRE
    order = [files[index].name for index in mixed(files)]
    assert [name for name, _ in groupby(order)] == [
        *("test_wheel.py", "test_fetch.py", "test_clocks.py", "test_groups.py")
    ]


def test_every_test_runs_once_and_those_of_a_file_in_their_order() -> None:
    """A test is lost, or one that builds on the test before it runs first."""
    files = UNIT + WIRE
    order = mixed(files)
    assert sorted(order) == list(range(len(files)))
    for file in set(files):
        of_file = [index for index in order if files[index] == file]
        assert of_file == sorted(of_file)
