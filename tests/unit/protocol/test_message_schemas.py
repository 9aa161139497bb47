"""If these fail, every command takes longer, and leaves folders, where hypothesis is installed."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.deadlines import deadline_s

LOOK = """
import sys
{imports}
print("hypothesis" in sys.modules)
import hypothesis
"""


@pytest.mark.parametrize(
    "module", ["odradek", "odradek.client.aio.admin", "odradek.cli.tools.groups.consumer_groups"]
)
def test_hypothesis_is_not_imported(tmp_path: Path, module: str) -> None:
    imports = (
        f"import {module}, odradek.protocol.schemas.message_schemas, kio.schema.metadata.v9.request"
    )
    command = [sys.executable, "-c", LOOK.format(imports=imports)]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=deadline_s(60), check=True
    )
    assert done.stdout == "False\n"
    assert list(tmp_path.iterdir()) == []
