"""Archives at home in an object store, `s3a://`, where nothing is renamed or appended to.

If this fails, a batch is committed twice or in part there, or an archive cannot be checked and
restored. The store is a server that answers as S3 does, conditional puts among it.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.deadlines import deadline_s
from tools import peers

from odradek import Broker

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jvm")]

TIMEOUT_S = deadline_s(600)
RECORDS = 100
# The first put of each file that must not be there yet is done and not answered, and so is one in
# twenty of all other requests; another is to be tried again. (Of more the client tires.)
SERVER = """
import itertools, socket, sys
from moto.server import ThreadedMotoServer
from moto.moto_server import threaded_moto_server
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
make_server, put, count = threaded_moto_server.make_server, set(), itertools.count(1)

def failing(serve):
    def served(environ, respond):
        place = environ["PATH_INFO"]
        is_first = environ.get("HTTP_IF_NONE_MATCH") == "*" and place not in put
        number = 0 if is_first else next(count) % 20
        if is_first:
            put.add(place)
        if number == 0:
            list(serve(environ, lambda *_: None))
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            return []
        if number != 10:
            return serve(environ, respond)
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        respond("503 Slow Down", [("Content-Length", "0"), ("Connection", "close")])
        return []
    return served

threaded_moto_server.make_server = lambda host, port, app, *how, **more: make_server(
    host, port, failing(app), *how, **more
)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
server.stop()
"""
PROGRAM = """
import sys
from dataclasses import replace
from urllib.request import Request, urlopen
from pyspark_odradek import session
from pyspark_odradek.pipelines import (
    PipelineError, PipelineSettings, archive, audit, compact, read_table, restore
)
from pyspark_odradek.pipelines.ends.batches import Output
from pyspark_odradek.pipelines.ends.files import FileSystem
from pyspark_odradek.pipelines.ends.owners import Lock

servers, store, jars = sys.argv[1:]
urlopen(Request(f"{store}/archives", method="PUT")).close()
conf = {
    "spark.jars": jars,
    "spark.sql.shuffle.partitions": "1",
    # Less is renamed, which is copied here.
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    "spark.hadoop.fs.s3a.endpoint": store,
    "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
    "spark.hadoop.fs.s3a.path.style.access": "true",
    "spark.hadoop.fs.s3a.access.key": "a",
    "spark.hadoop.fs.s3a.secret.key": "b",
    "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
}
place = "s3a://archives/a b%20[1]{c}*?ä/orders"

def dying(act):
    def dies(output, batch_id, *more):
        if batch_id == 1 and not dead:
            dead.append(True)
            raise ConnectionError("died")
        act(output, batch_id, *more)
    return dies

with session("s3", master="local[2]", conf=conf) as spark:
    files = FileSystem(spark)
    assert files.create(f"{place}-notes/a.json", "first")
    assert not files.create(f"{place}-notes/a.json", "second")
    assert files.read(f"{place}-notes/a.json") == "first"
    files.replace(f"{place}-notes/a.json", "third")
    assert files.read(f"{place}-notes/a.json") == "third"
    assert files.names(f"{place}-notes") == ["a.json"]
    files.remove(f"{place}-notes")
    assert not files.exists(f"{place}-notes/a.json")
    settings = PipelineSettings(
        servers, "orders", to=place, source=place, max_offsets_per_trigger=50
    )
    dead, Output.commit = [], dying(Output.commit)
    try:
        archive.build(spark, settings).run()
    except Exception as error:
        assert "died" in str(error), error
    assert dead
    with Lock(files, place):
        try:
            archive.build(spark, settings).run()
        except PipelineError as error:
            assert "is being written to" in str(error), error
        else:
            raise AssertionError("two runs wrote at once")
    archive.build(spark, settings).run()
    print("records", read_table(spark, place).count())
    print("compact", compact.build(spark, settings).run().facts)
    print("audit", audit.build(spark, settings).run().findings)
    again = replace(settings, topic="again")
    restore.build(spark, again).run()
    print("audit", audit.build(spark, again).run().findings)
"""


@contextmanager
def object_store() -> Iterator[str]:
    """Where a server listens that answers as S3 does."""
    environment = {**os.environ, "PYTHONPATH": str(peers.s3_server())}
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        lines = iter(process.stdout.readline, "")
        port = next(line for line in lines if line.strip().isdecimal()).strip()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.communicate("", timeout=deadline_s(30))


def test_an_archive_in_an_object_store_is_kept_checked_compacted_and_restored(
    tmp_path: Path,
) -> None:
    """With a run that dies in the middle of a batch, and one that comes beside another."""
    try:
        jars = ",".join(map(str, peers.s3_jars()))
        peers.s3_server()
    except peers.PeerUnavailable as reason:
        pytest.skip(f"PEER MISSING, NOT TESTED: {reason}")
    with Broker() as broker, object_store() as store:
        broker.create_topic("orders", partitions=2, config={"retention.ms": "-1"})
        broker.produce_many("orders", [b"v%d" % number for number in range(RECORDS)])
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, broker.bootstrap_servers, store, jars],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert f"records {RECORDS}" in done.stdout
        assert done.stdout.count("audit []") == 2, done.stdout
        values = {record.value for record in broker.records("again")}
    assert values == {b"v%d" % number for number in range(RECORDS)}
