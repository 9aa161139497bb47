"""Audits, and what else reads archives: if these fail, an audit finds fault with a sound one, or
a mistaken directory is answered with a traceback.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from pyspark_odradek.pipelines import PipelineError, PipelineSettings, audit, compact, restore
from pyspark_odradek.pipelines.bookkeeping.manifest import Archived
from pyspark_odradek.pipelines.ends.checkpoints import Checkpoint
from pyspark_odradek.pipelines.ends.sealed import seal
from pyspark_odradek.pipelines.running.jobs import Outcome


def test_a_batch_that_comes_while_an_audit_begins_is_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark knew of a batch that was not in the manifest when that was read, a moment before."""
    (tmp_path / "_manifest").mkdir()
    (tmp_path / "_checkpoint/commits").mkdir(parents=True)
    ends = [json.dumps({"t": {"0": 1}})]

    def add_batch() -> None:
        number = len(list((tmp_path / "_manifest").iterdir()))
        document = seal({"batch": number, "files": [], "offsets": ends})
        (tmp_path / f"_manifest/batch-{number}.json").write_text(document)
        (tmp_path / f"_checkpoint/commits/{number}").touch()

    def reading_while_one_comes(checkpoint: Checkpoint) -> int:
        add_batch()
        found = last_commit(checkpoint)
        add_batch()
        return found

    def missing(*given: Any) -> Outcome:
        done, _, archived = given[2:]
        assert isinstance(archived, Archived)
        return Outcome(list(audit.missing_batches(archived.snapshot.last_batch, done)))

    last_commit = Checkpoint.last_commit
    add_batch()
    monkeypatch.setattr(Checkpoint, "last_commit", reading_while_one_comes)
    monkeypatch.setattr(audit, "audit", missing)
    settings = PipelineSettings("", "t", source=str(tmp_path))
    job = audit.build(None, settings)  # type: ignore[arg-type]
    assert job.run().findings == []
    assert len(list((tmp_path / "_manifest").iterdir())) == 3


@pytest.mark.parametrize("pipeline", [audit, compact, restore])
@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"offsets": ['{"t": {"0": 1}}']},
        {"offsets": ['{"t": {"0": 1}}'], "schema": {}, "files": []},
    ],
)
def test_a_table_of_another_pipeline_is_no_archive(
    tmp_path: Path, pipeline: Any, facts: dict[str, Any]
) -> None:
    """That of `lag`, that of `dedup`, and of `decode` without rows: there was a KeyError for what
    documents lack, and the last was audited as an archive that has nothing."""
    files = [{"path": "batch=0-9f2c11ab/part-0.parquet", "bytes": 1}]
    (tmp_path / "_manifest").mkdir()
    document = seal({"batch": 0, "files": files, **facts})
    (tmp_path / "_manifest/batch-0.json").write_text(document)
    job = pipeline.build(None, PipelineSettings("", "t", source=str(tmp_path)))
    with pytest.raises(PipelineError, match="is no archive: it is a table of another pipeline"):
        job.run()
    assert sorted(path.name for path in tmp_path.rglob("*.json")) == ["batch-0.json"]
