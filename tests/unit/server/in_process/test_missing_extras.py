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
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Without())
try:
    exec(sys.argv[2])
except ImportError as error:
    print(error)
"""
TABLE = """
import odradek
with odradek.Broker() as broker:
    broker.produce("orders", "one spool of thread")
    broker.to_pandas("orders")
"""
IN_POLARS = """
import odradek
with odradek.Broker() as broker:
    broker.produce("orders", "one spool of thread")
    broker.to_polars("orders")
"""
TOPIC_IN_POLARS = """
from odradek.tables.topic import Topic
Topic("orders", path="data").to_polars()
"""
SPARK = "from pyspark_odradek import session"
CERTIFICATES = "import odradek; odradek.Broker(security='tls')"
COMMAND = """
from odradek.cli.main import main
sys.stderr = sys.stdout
main({})
"""
START = COMMAND.format(["start", "--zookeeper", "127.0.0.1:1", "--data-dir", "data"])
PIPELINE = COMMAND.format(["pipeline", "latest", "--topic", "t", "--bootstrap-server", "h:1"])
FOR_SPARK = "pyspark is not installed: pip install 'odradek[spark]'"
FOR_POLARS = "{} is not installed: pip install 'odradek[polars]'"
FOR_START = "odradek: ZooKeeper needs the client library kazoo: pip install 'odradek[zookeeper]'"
FOR_CERTIFICATES = "certificates need the extra `security`: pip install 'odradek[security]'"


@pytest.mark.parametrize(
    ("missing", "code", "answer"),
    [
        ("pyarrow", TABLE, "pyarrow is not installed: pip install 'odradek[arrow]'"),
        ("pandas", TABLE, "pandas is not installed: pip install 'pandas>=2.2.2,<3'"),
        *((name, IN_POLARS, FOR_POLARS.format(name)) for name in ("polars", "pyarrow")),
        *((name, TOPIC_IN_POLARS, FOR_POLARS.format(name)) for name in ("polars", "pyarrow")),
        ("pyspark", SPARK, FOR_SPARK),
        ("pyspark", PIPELINE, f"odradek pipeline: {FOR_SPARK}"),
        ("cryptography.x509", CERTIFICATES, FOR_CERTIFICATES),
        ("kazoo", START, FOR_START),
    ],
)
def test_what_needs_a_missing_library(missing: str, code: str, answer: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT, missing, code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == answer


def test_a_snapshot_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^there is no snapshot at .*nowhere$"):
        odradek.Broker.from_snapshot(tmp_path / "nowhere")
