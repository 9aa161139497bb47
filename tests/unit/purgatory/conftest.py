import pytest
from tests.unit.purgatory.acting import Hall


@pytest.fixture
def hall() -> Hall:
    return Hall()
