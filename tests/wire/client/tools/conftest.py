"""Kafka's own tools, which ours are held to, and ours."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.wire.client.tools.answers import Ours
from tests.wire.java_tools import Done, JavaTools

from odradek.cli.main import AS_KAFKA, SCRIPTS, main

TIME_LIMIT_S = 120
WRONG_USAGE = 2


@pytest.fixture(scope="module")
def java_tools(
    java: str, kafka_class_path: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaTools]:
    """Runs tools of Kafka's."""
    with JavaTools(java, kafka_class_path, tmp_path_factory.mktemp("java")) as tools:
        yield tools


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
