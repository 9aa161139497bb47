"""The identity of an exactly-once stream: the names and notes that the runs of a query share.

Notes are offsets of groups without members, all of one partition of the target topic. Brokers
forget them after `offsets.retention.minutes`.

    spark.<query>.sink              the claims: the runs of the query, each when its first task came
    spark.<checkpoint>.sink.cut     how the last batch that was committed is cut into tasks
    spark.<checkpoint>.sink.<task>  the marker: the number behind the last batch of this task

A checkpoint may go on with another topic, which has notes of its own, unless the last batch may be
in the topic before: the cut is there before the first share is committed.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from odradek.client.aio.admin import Admin
from odradek.client.core.admin_types import CommittedOffset
from odradek.client.errors import KafkaError, error_for
from odradek.model import TopicPartition
from odradek.tables.errors import OutdatedQuery

_BOOKKEEPING: Final = re.compile(r"spark\..+\.sink(\.\d+|\.cut)?")


def is_bookkeeping(group_id: str) -> bool:
    """Whether the offsets of a group are notes of a sink, not positions in a topic."""
    return _BOOKKEEPING.fullmatch(group_id) is not None


@dataclass(frozen=True)
class QueryRun:
    """A run of a query. `query` is its name, which one may have at a time for a topic.

    `run` is new whenever the query is started, `checkpoint` stays over all its runs. Notes are
    offsets of `marker`, a partition of the target topic that has to exist.
    """

    query: str
    checkpoint: str
    run: str
    marker: TopicPartition

    @property
    def claim_group(self) -> str:
        """The group that says, beside its offset, which runs there were."""
        return f"spark.{self.query}.sink"

    @property
    def cut_group(self) -> str:
        """The group that says how the last batch is cut."""
        return f"spark.{self.checkpoint}.sink.cut"

    def marker_group(self, task: int) -> str:
        """The group whose offset is the number behind the last batch that a task wrote."""
        return f"spark.{self.checkpoint}.sink.{task}"

    def transactional_id(self, what: int | str) -> str:
        """The id that fences an attempt at the same task that still runs, or an attempt at the
        `cut`.

        It is the checkpoint's: a copy of it that runs under another name would write the same.
        """
        return f"{self._transactions}{what}"

    def task_of(self, transactional_id: str) -> int | None:
        """The task that has this id; None if it is nothing of this query."""
        number = transactional_id.removeprefix(self._transactions)
        is_ours = number != transactional_id and number.isdecimal()
        return int(number) if is_ours else None

    @property
    def _transactions(self) -> str:
        return f"spark.{self.checkpoint}.{self.marker.topic}."

    def is_claimed(self, claims: CommittedOffset | None) -> bool:
        """Whether this run is the last one noted; a run that is not noted is new.

        Raises:
            OutdatedQuery: a newer run has the query's name.
        """
        runs = runs_of(claims)
        if self.run in runs[:-1]:
            raise OutdatedQuery(
                f"query {self.query} was started again: this run of it may not write any more"
            )
        return self.run in runs

    def check_follows(self, batch_id: int, note: CommittedOffset) -> None:
        """Checks a batch against the number behind the last one: Spark repeats only its last.

        Raises:
            OutdatedQuery: the batch is an older one, so its checkpoint is older too.
        """
        if note.offset > batch_id + 1:
            raise OutdatedQuery(
                f"query {self.query} comes with batch {batch_id}, and has written batch "
                f"{note.offset - 1}: its checkpoint is older than what it wrote"
            )

    async def read(
        self, admin: Admin, *group_ids: str, require_stable: bool = True
    ) -> Sequence[CommittedOffset | None]:
        """The notes of these groups, None for those that have none.

        Raises:
            KafkaError: a coordinator refuses, or does not answer.
        """
        found = await admin.list_group_offsets(
            group_ids, [self.marker], require_stable=require_stable
        )
        notes = []
        for group_id in group_ids:
            committed = found[group_id]
            if isinstance(committed, KafkaError):
                raise committed
            note = committed.get(self.marker)
            if isinstance(note, KafkaError):
                raise note
            notes.append(note)
        return notes

    async def check_elsewhere(self, admin: Admin, batch_id: int) -> None:
        """Checks that no commit of this batch to another topic was begun: it would be in both.

        Raises:
            OutdatedQuery: one was, or one of a later batch.
            KafkaError: a coordinator refuses, or does not answer.
        """
        found = await admin.list_group_offsets([self.cut_group], require_stable=True)
        notes = found[self.cut_group]
        if isinstance(notes, KafkaError):
            raise notes
        for part, note in notes.items():
            if part != self.marker and note.offset > batch_id:
                raise OutdatedQuery(
                    f"query {self.query}: batch {note.offset - 1} was written to {part.topic}, at "
                    f"least in part, and would be in {self.marker.topic} too. Start the query once "
                    f"with {part.topic}, until this batch is done"
                )

    async def write(self, admin: Admin, group_id: str, note: CommittedOffset) -> None:
        """Writes a note.

        Raises:
            KafkaError: the coordinator refuses, or does not answer.
        """
        outcomes = await admin.alter_group_offsets(group_id, {self.marker: note})
        for error in outcomes.values():
            if error is not None:
                raise error_for(error.code, f"{self.marker}: {error.message}")


def runs_of(claims: CommittedOffset | None) -> list[str]:
    """The noted runs in their order."""
    return claims.metadata.split() if claims is not None else []
