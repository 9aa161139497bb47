"""Suites that break the sources on purpose are slow; whether they still can is seen at once."""

from importlib import import_module
from pathlib import Path

import pytest
from tests.mutants import Mutants

ROOT = Path(__file__).parents[2]
SUITES = sorted(
    path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
    for path in (ROOT / "tests").rglob("test_*.py")
    if "import Mutants" in path.read_text(encoding="utf-8") and path != Path(__file__)
)


@pytest.mark.parametrize("suite", SUITES)
def test_mutations_follow_the_sources(suite: str) -> None:
    """Fails when what a mutation breaks was changed, and nobody would know before all tests run."""
    found = [each for each in vars(import_module(suite)).values() if isinstance(each, Mutants)]
    assert found
    for each in found:
        each.assert_follow()
