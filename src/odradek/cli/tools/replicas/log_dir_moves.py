"""Moves replicas between the log directories of their broker, as `kafka-reassign-partitions.sh`
does.
"""

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple

from odradek.cli.tools.replicas.reassignment_plan import Moves, Replica, joined
from odradek.client import Admin
from odradek.client.errors import KafkaError
from odradek.errors import ErrorCode

_PAUSE_S: Final = 0.1


class TimedOut(ValueError):
    """Not all moves could begin in time."""


class Directories(NamedTuple):
    """The log directories of replicas, now and after their moves."""

    current: Moves
    future: Moves


async def directories_of(admin: Admin, broker_ids: Iterable[int]) -> Directories:
    """Asks brokers for their log directories; those that do not answer have none."""
    found = Directories({}, {})
    for broker_id, described in (await admin.describe_log_dirs(sorted(set(broker_ids)))).items():
        if isinstance(described, KafkaError):
            continue
        for directory in described:
            for partition, replica in directory.replicas.items():
                where = found.future if replica.is_future else found.current
                where[Replica(broker_id, partition)] = directory.path
    return found


class MoveState(NamedTuple):
    """The state of a move."""

    text: str
    is_done: bool


async def move_states(admin: Admin, moves: Moves) -> dict[Replica, MoveState]:
    """Returns the state of each move, in the order of brokers."""
    directories = await directories_of(admin, [each.broker_id for each in moves])
    return {
        each: _state(each, moves[each], directories.current.get(each), directories.future.get(each))
        for each in sorted(moves)
    }


def _state(replica: Replica, target: str, current: str | None, future: str | None) -> MoveState:
    where = f"Partition {replica.partition} on broker {replica.broker_id}"
    if current is None:
        return MoveState(
            f"Partition {replica.partition} is not found in any live log dir on broker "
            f"{replica.broker_id}. There is likely an offline log directory on the broker.",
            False,
        )
    if future == target:
        return MoveState(f"Reassignment of replica {replica} is still in progress.", False)
    if future is not None:
        return MoveState(f"{where} is being moved to log dir {future} instead of {target}.", False)
    if current == target:
        return MoveState(f"Reassignment of replica {replica} completed successfully.", True)
    return MoveState(f"{where} is not being moved from log dir {current} to {target}.", True)


async def begin_moves(admin: Admin, moves: Moves, timeout_ms: int) -> None:
    """Begins moves; those of replicas that do not exist yet begin once they do.

    Raises:
        ValueError: a broker refuses, or the time is over.
    """
    waiting = dict(moves)
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + timeout_ms / 1000
    while True:
        for replica, error in sorted(
            (await _alter(admin, waiting)).items(), key=lambda each: each[0]
        ):
            if error is None:
                partition, broker_id = replica.partition, replica.broker_id
                print(
                    f"Successfully started moving log directory to {waiting.pop(replica)} for "
                    f"replica {partition} with broker {broker_id} "
                )
            elif error.code is not ErrorCode.REPLICA_NOT_AVAILABLE:
                raise ValueError(f"Failed to alter dir for {replica}") from error
        if not waiting:
            return
        if loop.time() >= ends_s:
            ending = "s" if len(waiting) > 1 else ""
            raise TimedOut(
                f"Timed out before log directory move{ending} could be started for: "
                f"{joined(sorted(waiting))}"
            )
        await asyncio.sleep(_PAUSE_S)


async def _alter(admin: Admin, moves: Moves) -> dict[Replica, KafkaError | None]:
    answers = await admin.alter_replica_log_dirs(
        {(each.broker_id, each.partition): path for each, path in moves.items()}
    )
    return {Replica(*key): error for key, error in answers.items()}


async def take_back(admin: Admin, moves: Moves, timeout_ms: int) -> bool:
    """Cancels the moves of replicas; False if none is moving."""
    directories = await directories_of(admin, [each.broker_id for each in moves])
    under_way = {
        each: directories.current[each]
        for each in moves
        if each in directories.future and each in directories.current
    }
    if under_way:
        await begin_moves(admin, under_way, timeout_ms)
    return bool(under_way)
