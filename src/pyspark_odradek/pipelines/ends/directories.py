"""Whose a directory is, and a table that takes the place of the one before.

Pipelines go on in the directory that an earlier run has left. One that is of another pipeline or
topic, or of somebody else, would be mixed up with it, or removed:

    orders/_odradek.json   {"pipeline": "archive", "topic": "orders"}
"""

import json
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from pyspark_odradek.pipelines.ends.files import FileSystem
from pyspark_odradek.pipelines.running.settings import PipelineError

_OWNER: Final = "_odradek.json"
_NEW: Final = "_new"


def claim(spark: SparkSession, directory: str, pipeline: str, topic: str) -> None:
    """Makes a new directory one of this pipeline and topic, or sees that it is.

    Raises:
        PipelineError: it is another's, or holds files of nobody knows whom.
    """
    if not check_owner(spark, directory, pipeline, topic):
        owner = json.dumps({"pipeline": pipeline, "topic": topic})
        FileSystem(spark).replace(f"{directory}/{_OWNER}", owner)


def check_owner(spark: SparkSession, directory: str, pipeline: str, topic: str) -> bool:
    """Sees that a directory is of nobody else, and tells whether it is claimed already.

    Raises:
        PipelineError: as of `claim`.
    """
    files, mark = FileSystem(spark), f"{directory}/{_OWNER}"
    names = [name for name in sorted(files.names(directory)) if name[0] != "."]
    # What failed at its start has left nothing but its mark.
    if _OWNER in names and names != [_OWNER]:
        owner = json.loads(files.read(mark))
        if owner != {"pipeline": pipeline, "topic": topic}:
            raise PipelineError(
                f"{directory} is of {owner['pipeline']} of the topic {owner['topic']}; "
                "choose another directory"
            )
        return True
    # What begins with an underscore is passed over by readers of Parquet, and here.
    others = [name for name in names if name[0] != "_"]
    if others:
        raise PipelineError(
            f"{directory} holds {others[0]}, which is not of {pipeline} of the topic {topic}; "
            "choose another directory, or empty it"
        )
    return False


def replace_table(spark: SparkSession, table: DataFrame, directory: str) -> None:
    """Writes a table, and puts it in the place of the one in the directory when it is whole."""
    files, new = FileSystem(spark), f"{directory}/{_NEW}"
    table.write.mode("overwrite").parquet(new)
    for name in files.names(directory):
        if name not in (_OWNER, _NEW):
            files.remove(f"{directory}/{name}")
    for name in files.names(new):
        files.move(f"{new}/{name}", f"{directory}/{name}")
    files.remove(new)
