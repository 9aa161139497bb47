"""Our own tools, which are held to Kafka's."""

import os
import subprocess
import sys

import pytest
from tests.deadlines import deadline_s
from tests.wire.client.tools.comparing.answers import Ours
from tests.wire.java_tools import Done

from odradek.cli.main import AS_KAFKA, SCRIPTS, main

TIME_LIMIT_S = deadline_s(120)
WRONG_USAGE = 2


@pytest.fixture
def ours(capsys: pytest.CaptureFixture[str]) -> Ours:
    """Runs our tools: here, or in a process when they read what is typed."""

    def call(tool: str, words: list[str], text: str) -> Done:
        if text:
            command = [sys.executable, "-m", "odradek", tool, *words]
            done = subprocess.run(
                command,
                input=text.encode(),
                capture_output=True,
                timeout=TIME_LIMIT_S,
                check=False,
                env=os.environ,
            )
            return Done(done.returncode, done.stdout.decode(), done.stderr.decode())
        capsys.readouterr()
        try:
            status = main([*(AS_KAFKA for each in SCRIPTS if each.name == tool), tool, *words])
        except SystemExit:
            status = WRONG_USAGE
        return Done(status, *capsys.readouterr())

    return call
