"""A feature of a missing extra is asked for: the answer says what to install.

If these fail, a reader of docs/install.md reads of a module of somebody else's instead.
"""

import subprocess
import sys
from pathlib import Path

import pytest

import odradek

WITHOUT = """
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Without())
import odradek
with odradek.Broker() as broker:
    broker.produce("orders", "one spool of thread")
    try:
        broker.to_pandas("orders")
    except ImportError as error:
        print(error)
"""


@pytest.mark.parametrize(
    ("missing", "answer"),
    [
        ("pyarrow", "pyarrow is not installed: pip install 'odradek[arrow]'"),
        ("pandas", "pandas is not installed: pip install 'pandas>=2.2.2,<3'"),
    ],
)
def test_a_table_without_its_library(missing: str, answer: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, missing], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == answer


def test_a_snapshot_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^there is no snapshot at .*nowhere$"):
        odradek.Broker.from_snapshot(tmp_path / "nowhere")
