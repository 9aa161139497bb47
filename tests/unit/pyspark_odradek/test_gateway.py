"""If these fail, Spark starts on the wrong Java, hangs at its start, or leaves a JVM behind."""

import subprocess
import sys
from pathlib import Path

import pytest

from pyspark_odradek import gateway
from pyspark_odradek.gateway import GatewayError, find_java, java_version, launch


def program(path: Path, script: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    # As pip does: the first line of a script cannot name a program whose path has spaces.
    head = f"#!/bin/sh\n'''exec' '{sys.executable}' \"$0\" \"$@\"\n' '''"
    path.write_text(f"{head}\n{script}\n")
    path.chmod(0o755)
    return str(path)


def java(path: Path, version: str) -> str:
    return program(path, f"import sys; sys.stderr.write('openjdk version \"{version}\" 2024\\n')")


@pytest.mark.parametrize(
    ("version", "release"), [("17.0.9", 17), ("1.8.0_402", 8), ("25", 25), ("21-ea", 21)]
)
def test_a_java_says_its_release(tmp_path: Path, version: str, release: int) -> None:
    assert java_version(java(tmp_path / "java", version)) == release


def test_what_does_not_run_is_no_java(tmp_path: Path) -> None:
    assert java_version(str(tmp_path / "java")) == 0
    assert java_version(program(tmp_path / "silent", "")) == 0


def test_java_home_goes_first_and_old_ones_are_passed_over(tmp_path, monkeypatch) -> None:
    new = java(tmp_path / "home" / "bin" / "java", "21.0.1")
    on_path = java(tmp_path / "path" / "java", "17.0.1")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert find_java() == new
    java(tmp_path / "home" / "bin" / "java", "11.0.1")
    assert find_java() == on_path


def test_without_any_java_the_message_says_what_to_do(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(gateway, "find_spec", lambda _: None)
    with pytest.raises(GatewayError, match="JAVA_HOME"):
        find_java()


def test_a_jvm_that_ends_at_once_is_reported(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(gateway, "find_java", lambda: program(tmp_path / "java", "exit(3)"))
    with pytest.raises(GatewayError, match="status 3"):
        launch({})


def test_a_jvm_that_says_nothing_is_ended(tmp_path, monkeypatch) -> None:
    started = []

    class Noted(subprocess.Popen):
        def __init__(self, *arguments, **more) -> None:
            super().__init__(*arguments, **more)
            started.append(self)

    fake = program(tmp_path / "java", "import sys; sys.stdin.read()")
    monkeypatch.setattr(gateway, "find_java", lambda: fake)
    monkeypatch.setattr(gateway.subprocess, "Popen", Noted)
    with pytest.raises(GatewayError, match="not ready within 1 s"):
        launch({}, timeout_s=1)
    (process,) = started
    assert process.returncode is not None


def test_a_jvm_announces_itself_and_ends_with_its_input(tmp_path, monkeypatch) -> None:
    script = """
import os, struct, sys
path = os.environ["_PYSPARK_DRIVER_CONN_INFO_PATH"]
open(path + ".new", "wb").write(struct.pack("!ii", 4711, 6) + b"secret")
os.rename(path + ".new", path)
sys.stdin.read()
"""
    monkeypatch.setattr(gateway, "find_java", lambda: program(tmp_path / "java", script))
    monkeypatch.delenv("PYSPARK_GATEWAY_SECRET", raising=False)
    started = launch({"spark.jars": "a.jar"})
    started.offer()
    assert gateway.os.environ["PYSPARK_GATEWAY_PORT"] == "4711"
    assert gateway.os.environ["PYSPARK_GATEWAY_SECRET"] == "secret"
    started.close()
    assert started.process.returncode == 0
    assert "PYSPARK_GATEWAY_SECRET" not in gateway.os.environ
    started.close()


def test_settings_reach_the_command_line(monkeypatch) -> None:
    options = ["-Xmx3g", "-XX:+UseSerialGC"]
    command = gateway._command(
        "java", {"spark.jars": "a=b.jar"}, options, Path("/log4j2.properties")
    )
    assert command[command.index("--conf") + 1] == "spark.jars=a=b.jar"
    assert command[3:5] == options
    assert command[-1] == "pyspark-shell"
