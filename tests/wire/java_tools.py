"""Apache Kafka's command line tools, many command lines in one JVM.

A JVM takes a second to start and a tool a tenth of that, so that a whole table of command lines can
be compared with ours in a test.
"""

import os
import struct
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.deadlines import deadline_s

RUNNER: Final = Path(__file__).parent / "java" / "ToolRunner.java"
TIME_LIMIT_S: Final = deadline_s(120)
PROCESS_ENDS: Final = -1
_PACKAGE: Final = "org.apache.kafka.tools"
CLASSES: Final = {
    "topics": f"{_PACKAGE}.TopicCommand",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": f"{_PACKAGE}.consumer.ConsoleConsumer",
    "console-producer": f"{_PACKAGE}.ConsoleProducer",
    "consumer-groups": f"{_PACKAGE}.consumer.group.ConsumerGroupCommand",
    "share-groups": f"{_PACKAGE}.consumer.group.ShareGroupCommand",
    "get-offsets": f"{_PACKAGE}.GetOffsetShell",
    "delete-records": f"{_PACKAGE}.DeleteRecordsCommand",
    "acls": f"{_PACKAGE}.AclCommand",
    "cluster": f"{_PACKAGE}.ClusterTool",
    "log-dirs": f"{_PACKAGE}.LogDirsCommand",
    "producer-perf-test": f"{_PACKAGE}.ProducerPerformance",
    "consumer-perf-test": f"{_PACKAGE}.ConsumerPerformance",
    "leader-election": f"{_PACKAGE}.LeaderElectionCommand",
    "reassign-partitions": f"{_PACKAGE}.reassign.ReassignPartitionsCommand",
    "transactions": f"{_PACKAGE}.TransactionsCommand",
    "broker-api-versions": f"{_PACKAGE}.BrokerApiVersionsCommand",
    "groups": f"{_PACKAGE}.GroupsCommand",
    "features": f"{_PACKAGE}.FeatureCommand",
    "metadata-quorum": f"{_PACKAGE}.MetadataQuorumCommand",
    "verifiable-consumer": f"{_PACKAGE}.VerifiableConsumer",
    "verifiable-producer": f"{_PACKAGE}.VerifiableProducer",
}


class Done(NamedTuple):
    """The outcome of a command line."""

    status: int
    output: str
    errors: str


class JavaTools:
    """A JVM that runs Kafka's tools; ends with its `with` block.

    The argument parser of some tools ends the process by itself: another one is started then.
    """

    def __init__(self, java: str, class_path: str, folder: Path) -> None:
        """Starts the JVM; `folder` takes the log of its libraries."""
        # Some tools log by the one library, some by the other.
        logging = folder / "log4j.properties", folder / "log4j2.properties"
        logging[0].write_text("log4j.rootLogger=OFF\n", encoding="utf-8")
        logging[1].write_text("rootLogger.level = OFF\n", encoding="utf-8")
        flags = [
            *("-Xmx256m", "-XX:TieredStopAtLevel=1", f"-Djava.io.tmpdir={folder}"),
            f"-Dlog4j.configuration=file:{logging[0]}",
            f"-Dlog4j2.configurationFile={logging[1]}",
        ]
        # Compiled once: a JVM that is started with a source compiles it each time.
        compiler = [java, "--module", "jdk.compiler/com.sun.tools.javac.Main"]
        paths = ["-cp", class_path, "-d", os.fspath(folder), os.fspath(RUNNER)]
        subprocess.run([*compiler, *paths], check=True, capture_output=True)
        path = os.pathsep.join([os.fspath(folder), class_path])
        self._command = [java, *flags, "-cp", path, RUNNER.stem]
        self._jvm = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self) -> "JavaTools":
        return self

    def __exit__(self, *_: object) -> None:
        self._jvm.kill()
        self._jvm.communicate()

    def __call__(self, tool: str, words: Sequence[str], text: str = "") -> Done:
        """Runs a command line of one of the `CLASSES`; see `run`."""
        return self.run(CLASSES[tool], words, text)

    def run(self, name: str, words: Sequence[str], text: str = "") -> Done:
        """Runs the class of that name with `text` on its standard input; one that does not end is a
        failure."""
        assert self._jvm.stdin is not None, "it was opened with a pipe"
        assert self._jvm.stdout is not None, "and this one"
        line = [name, *words]
        self._jvm.stdin.write(struct.pack(">i", len(line)))
        for each in (*line, text):
            data = each.encode()
            self._jvm.stdin.write(struct.pack(">i", len(data)) + data)
        self._jvm.stdin.flush()
        limit = threading.Timer(TIME_LIMIT_S, self._jvm.kill)
        limit.start()
        try:
            (status,) = struct.unpack(">i", self._read(4))
            done = Done(status, self._text(), self._text())
        finally:
            limit.cancel()
        if status == PROCESS_ENDS:
            self._jvm.stdin.close()
            self._jvm.stdout.close()
            done = done._replace(status=self._jvm.wait())
            self._jvm = self._start()
        return done

    def _text(self) -> str:
        (length,) = struct.unpack(">i", self._read(4))
        return self._read(length).decode(errors="replace")

    def _read(self, length: int) -> bytes:
        assert self._jvm.stdout is not None, "it was opened with a pipe"
        data = self._jvm.stdout.read(length)
        assert len(data) == length, f"the tool ended the JVM, or not itself in {TIME_LIMIT_S} s"
        return data
