"""SHA-256 of files, read in pieces: a file of any size takes a megabyte of memory.

Spark's workers compute them, each for some files, if they share the disk with the files; small
amounts, which take less time than starting workers, are computed here. On other file systems the
driver's JVM computes them.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import SparkSession

from pyspark_odradek.pipelines.ends.files import HadoopFiles, arrow_files, local_path

if TYPE_CHECKING:
    import pyarrow as pa

_PIECE: Final = 1 << 20
_MOST_TASKS: Final = 256
# A tenth of a second's work.
_SMALL_BYTES: Final = 64 << 20
_SCHEMA: Final = "path string, bytes long, sha256 string"


def checksums_of(spark: SparkSession, paths: Iterable[str]) -> dict[str, tuple[int, str]]:
    """Returns size and SHA-256 of the files that exist, by their paths."""
    wanted = list(paths)
    if not wanted:
        return {}
    hadoop = HadoopFiles(spark) if isinstance(spark, SparkSession) else None
    places = {path: path if hadoop is None else hadoop.uri(path) for path in wanted}
    is_on_disk = local_path(places[wanted[0]]) is not None
    if hadoop is not None and not is_on_disk:
        found = ((path, _in_jvm(spark, hadoop, path)) for path in wanted if hadoop.exists(path))
        return dict(found)
    here = [(path, local) for path, place in places.items() if (local := _there(place))]
    if is_on_disk and sum(os.path.getsize(local) for _, local in here) <= _SMALL_BYTES:
        return {path: checksum_of(local) for path, local in here}
    rows = spark.createDataFrame(list(places.items()), "path string, place string")
    each = rows.repartition(min(len(wanted), _MOST_TASKS)).mapInArrow(_of_files, _SCHEMA)
    return {row.path: (row.bytes, row.sha256) for row in each.collect()}


def _there(place: str) -> str | None:
    local = local_path(place)
    return local if local is not None and os.path.exists(local) else None


def checksum_of(place: str) -> tuple[int, str]:
    """Returns size and SHA-256 of a file on a disk, or of one that Arrow can read.

    Raises:
        FileNotFoundError: it does not exist.
    """
    digest, size = sha256(), 0
    with _opened(place) as file:
        piece = memoryview(bytearray(_PIECE))
        while count := file.readinto(piece):
            digest.update(piece[:count])
            size += count
    return size, digest.hexdigest()


def _opened(place: str) -> Any:
    local = local_path(place)
    if local is not None:
        return open(local, "rb", buffering=0)
    files, path = arrow_files(place)
    return files.open_input_stream(path)


def _of_files(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa

    names = [("path", pa.string()), ("bytes", pa.int64()), ("sha256", pa.string())]
    schema = pa.schema([pa.field(name, kind) for name, kind in names])
    for batch in batches:
        rows: list[dict[str, object]] = []
        for path, place in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            with suppress(FileNotFoundError):
                size, digest = checksum_of(place)
                rows.append({"path": path, "bytes": size, "sha256": digest})
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


def _in_jvm(spark: SparkSession, hadoop: HadoopFiles, path: str) -> tuple[int, str]:
    jvm: Any = spark._jvm
    place = jvm.org.apache.hadoop.fs.Path(path)
    files = place.getFileSystem(hadoop.configuration)
    stream = files.open(place)
    try:
        digest = str(jvm.org.apache.commons.codec.digest.DigestUtils.sha256Hex(stream))
    finally:
        stream.close()
    return int(files.getFileStatus(place).getLen()), digest
