"""Runs Apache Kafka's own purgatory, from its published jars, under our harness in Java.

Kafka's benchmark class completes requests at their time-out instead of at their latency, so it
cannot be used as it is; `PurgatoryHarness.java` does the same as our own harness.
"""

import hashlib
import json
import os
import subprocess
from pathlib import Path

from tools import peers

SOURCE = Path(__file__).with_name("PurgatoryHarness.java")
JARS = ("kafka-server-common-", "kafka-clients-", "metrics-core-2", "slf4j-", "reload4j-")
WARM_UP_REQUESTS = 200_000


def run(options: dict[str, object]) -> dict[str, object]:
    """One run; the figures that our own measuring process prints, `error` if memory ran out.

    Raises:
        tools.peers.PeerUnavailable: there is no Java, no compiler, or no Maven here.
    """
    classes, jars = compiled_harness()
    arguments = [options[name] for name in ("requests", "rate", "timeout_ms", "p50_ms", "p75_ms")]
    arguments += [options[name] for name in ("request_bytes", "purge_interval", "completions")]
    command = [
        peers.java(),
        "-server",
        f"-Xmx{options['memory_mb'] or 1024}m",
        "-cp",
        os.pathsep.join([str(classes), *map(str, jars)]),
        "PurgatoryHarness",
        *map(str, arguments),
        str(WARM_UP_REQUESTS),
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        output, errors = process.communicate()
    if process.returncode != 0 or "OutOfMemoryError" in errors:
        return {"error": next((line for line in errors.splitlines() if "Error" in line), errors)}
    figures: dict[str, object] = json.loads(output.splitlines()[-1])
    return figures


def compiled_harness() -> tuple[Path, list[Path]]:
    """The folder with our class, compiled if that was not done yet, and Kafka's jars."""
    jars = [jar for jar in peers.kafka_jars() if jar.name.startswith(JARS)]
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    folder = peers.CACHE / f"purgatory-harness-{digest}"
    if not (folder / "PurgatoryHarness.class").exists():
        folder.mkdir(parents=True, exist_ok=True)
        compiler = peers.program("javac", "default-jdk-headless")
        path = os.pathsep.join(map(str, jars))
        subprocess.run([compiler, "-cp", path, "-d", str(folder), str(SOURCE)], check=True)
    return folder, jars
