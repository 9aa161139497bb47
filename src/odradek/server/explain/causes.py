"""The causes for which nothing comes, as a table: the first ones stop everything, the last ones
are no more than a reason to look elsewhere.

Each is a function of a picture that describes the cause for every place where it applies.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from odradek.server.explain.picture import (
    GroupPicture,
    MemberPicture,
    PartitionPicture,
    Picture,
    Reading,
)

Find = Callable[[Picture], Iterator[str]]


class Cause(NamedTuple):
    """A row of the table."""

    name: str
    find: Find


def _paused(picture: Picture) -> Iterator[str]:
    if picture.is_paused:
        yield "the broker is paused: it answers no requests until it is resumed"


def _fault(picture: Picture) -> Iterator[str]:
    for fault in picture.faults:
        yield f"a fault is in force: {fault}"


def _missing(picture: Picture) -> Iterator[str]:
    if picture.missing:
        yield picture.missing


def _no_topic(picture: Picture) -> Iterator[str]:
    for group in picture.groups:
        for topic in group.missing_topics:
            yield f"there is no topic {topic}, which {group.group_id} subscribes to"


def _no_members(picture: Picture) -> Iterator[str]:
    for group in picture.groups:
        if not group.members and group.state in ("Empty", "Dead"):
            yield (
                f"no member is in the group {group.group_id}{_since(group)}: no consumer has joined"
            )


def _awaited(picture: Picture) -> Iterator[str]:
    for group in picture.groups:
        late = ", ".join(_named(each) for each in group.members if each.is_awaited)
        what = {
            "PreparingRebalance": "rejoin",
            "CompletingRebalance": "ask for its partitions",
        }.get(group.state)
        if what is not None:
            whom = f"{late} to {what}" if late else "more members to come"
            yield f"the group {group.group_id} rebalances{_since(group)}, and waits for {whom}"
        for member in group.members:
            if member.to_revoke:
                kept = ", ".join(map(str, member.to_revoke))
                yield f"{_named(member)} has yet to give up {kept}, which others are to get"


def _no_leader(picture: Picture) -> Iterator[str]:
    for each in _partitions(picture):
        if each.leader < 0:
            yield f"{each.where} has no leader: the brokers of its replicas are gone"


def _out_of_range(picture: Picture) -> Iterator[str]:
    for group in picture.groups:
        for each in group.partitions:
            at = each.committed
            if at is None or each.leader < 0 or each.start_offset <= at <= each.end_offset:
                continue
            there = (
                f"the records there are begin at {each.start_offset} and end at {each.end_offset}"
            )
            yield (
                f"{group.group_id} has committed {at} of {each.where}, and {there}: its consumers "
                "begin where auto.offset.reset says, or fail where that is none"
            )


def _no_partitions(picture: Picture) -> Iterator[str]:
    for group in picture.groups:
        idle = [each for each in group.members if not each.partitions]
        if group.state.lower() != "stable" or not idle or not group.partitions:
            continue
        count, members = len(group.partitions), len(group.members)
        why = "each partition has one member" if count < members else "the assignor gave it none"
        for member in idle:
            yield (
                f"{_named(member)} has no partitions: {_counted(members, 'member')} share "
                f"{_counted(count, 'partition')}, and {why}"
            )


def _throttled(picture: Picture) -> Iterator[str]:
    for client, left_ms in picture.throttled:
        yield f"the client {client} is held back by a quota, for {_duration(left_ms)} yet"


def _open_transaction(picture: Picture) -> Iterator[str]:
    for each in _partitions(picture):
        for one in each.transactions[:1]:
            held = each.high_watermark - each.last_stable_offset
            if held > 0:
                who = f" of {one.transactional_id}" if one.transactional_id else ""
                yield (
                    f"an open transaction{who} (producer {one.producer_id}) holds the last stable "
                    f"offset of {each.where} at {each.last_stable_offset} since "
                    f"{_duration(one.open_ms)}: who reads only what is committed does not get the "
                    f"{_counted(held, 'record')} behind it"
                )


def _few_replicas(picture: Picture) -> Iterator[str]:
    for each in _partitions(picture):
        if each.leader >= 0 and each.isr < each.least_isr:
            hidden = each.end_offset - each.high_watermark
            yield (
                f"{each.where} has {_counted(each.isr, 'replica')} in sync and min.insync.replicas "
                f"asks for {each.least_isr}: producers with acks=all are refused"
                + (f", and {_counted(hidden, 'record')} cannot be read yet" if hidden else "")
            )


def _reset_to_latest(picture: Picture) -> Iterator[str]:
    for group, each in _of_groups(picture):
        for reading in each.readings:
            at_end = reading.offset == each.high_watermark > each.start_offset
            if each.committed is None and at_end and _is_of(reading, group):
                older = each.high_watermark - each.start_offset
                # Where it began is not known.
                yield (
                    f"{group.group_id} has committed nothing of {each.where}, and "
                    f"{reading.client_id} waits at its end, {reading.offset}: it has read the "
                    f"{_counted(older, 'record')} there, or auto.offset.reset is latest and it has "
                    "begun behind them"
                )


def _not_committed(picture: Picture) -> Iterator[str]:
    for group, each in _of_groups(picture):
        at = each.committed
        for reading in each.readings:
            if at is not None and at < reading.offset and _is_of(reading, group):
                read = reading.offset - at
                yield (
                    f"{reading.client_id} has read {_counted(read, 'record')} of {each.where} and "
                    f"not committed them: {group.group_id} stands at {at}, it reads at "
                    f"{reading.offset}"
                )


def _min_bytes(picture: Picture) -> Iterator[str]:
    readings = [(each.where, one) for each in _partitions(picture) for one in each.readings]
    for where, reading in dict.fromkeys([*readings, *picture.readings]):
        if reading.min_bytes > 1:
            yield (
                f"{reading.client_id} waits since {_duration(reading.waited_ms)} until there is "
                f"more of {where}: fetch.min.bytes is {reading.min_bytes}, and "
                f"{reading.missing} are missing"
            )


def _no_poll(picture: Picture) -> Iterator[str]:
    for group in picture.groups:
        if group.state.lower() != "stable":
            continue
        by_place = {each.where: each for each in group.partitions}
        for member in group.members:
            for where in member.partitions:
                each = by_place.get(where)
                if each is None or not each.waiting_records or each.leader < 0:
                    continue
                if not any(reading.client_id == member.client_id for reading in each.readings):
                    yield (
                        f"{_named(member)} has {where}, lives, and asks for none of the "
                        f"{_counted(each.waiting_records, 'record')} that wait there: it has not "
                        "called poll(), is busy with what it has, or has paused the partition"
                    )


def _error(picture: Picture) -> Iterator[str]:
    for error in picture.errors:
        yield f"an error was answered lately: {error}"


def _nothing_new(picture: Picture) -> Iterator[str]:
    for group in picture.groups:
        places = [each for each in group.partitions if each.leader >= 0]
        if places and not any(each.waiting_records for each in places):
            yield f"{group.group_id} has read all records: nothing new has been written"


def _deleted(picture: Picture) -> Iterator[str]:
    for each in picture.partitions:
        if 0 < each.start_offset == each.end_offset:
            yield (
                f"{each.where} has had {_counted(each.end_offset, 'record')}, and all are deleted: "
                "by retention, or by DeleteRecords"
            )


def _never_written(picture: Picture) -> Iterator[str]:
    if picture.partitions and not any(each.end_offset for each in picture.partitions):
        yield f"nothing has ever been written to {picture.question.name}"


def _nobody_reads(picture: Picture) -> Iterator[str]:
    is_read = picture.groups or any(each.readings for each in picture.partitions)
    if picture.partitions and not is_read:
        yield f"no group reads {picture.question.name}, and no fetch waits for its records"


def _transaction(picture: Picture) -> Iterator[str]:
    one = picture.transaction
    if one is None:
        return
    name, since = one.transactional_id, _duration(one.since_ms)
    places = ", ".join(map(str, one.partitions)) or "no partition yet"
    match one.state:
        case "ONGOING":
            left = _duration(max(one.timeout_ms - one.since_ms, 0))
            yield (
                f"the transaction {name} of producer {one.producer_id} is open since {since}, with "
                f"{places}: its records are read once it ends, or are dropped in {left}"
            )
        case "PREPARE_COMMIT" | "PREPARE_ABORT":
            gone = ", ".join(map(str, one.leaderless))
            why = f"{gone} has no leader" if gone else "a partition has not got its marker"
            what = "committed" if one.state == "PREPARE_COMMIT" else "aborted"
            yield f"the transaction {name} is being {what} since {since}, and {why}"
        case _:
            yield f"the transactional id {name} has no open transaction: it holds nothing up"


CAUSES: Final = (
    Cause("paused", _paused),
    Cause("fault", _fault),
    Cause("missing", _missing),
    Cause("no topic", _no_topic),
    Cause("no leader", _no_leader),
    Cause("no members", _no_members),
    Cause("rebalance", _awaited),
    Cause("no partitions", _no_partitions),
    Cause("out of range", _out_of_range),
    Cause("throttled", _throttled),
    Cause("open transaction", _open_transaction),
    Cause("few replicas", _few_replicas),
    Cause("transaction", _transaction),
    Cause("reset to latest", _reset_to_latest),
    Cause("not committed", _not_committed),
    Cause("min bytes", _min_bytes),
    Cause("no poll", _no_poll),
    Cause("error", _error),
    Cause("deleted", _deleted),
    Cause("never written", _never_written),
    Cause("nobody reads", _nobody_reads),
    Cause("nothing new", _nothing_new),
)


def _partitions(picture: Picture) -> Iterator[PartitionPicture]:
    """The partitions of the topic, or of the groups, each once."""
    found = [*picture.partitions, *(each for group in picture.groups for each in group.partitions)]
    yield from {each.where: each for each in reversed(found)}.values()


def _of_groups(picture: Picture) -> Iterator[tuple[GroupPicture, PartitionPicture]]:
    for group in picture.groups:
        for each in group.partitions:
            yield group, each


def _is_of(reading: Reading, group: GroupPicture) -> bool:
    return any(reading.client_id == member.client_id for member in group.members)


def _named(member: MemberPicture) -> str:
    return f"the member {member.client_id} ({member.host}, {member.member_id})"


def _since(group: GroupPicture) -> str:
    return "" if group.since_ms is None else f" since {_duration(group.since_ms)}"


def _duration(duration_ms: int) -> str:
    seconds = duration_ms / 1000
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
