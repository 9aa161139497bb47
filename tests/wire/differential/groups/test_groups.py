"""Classic groups: Apache Kafka and ours answer the same, field by field, errors and all."""

import struct
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from tests.deadlines import deadline_s
from tests.wire.differential.harness import Peer, Scenario, Target

pytestmark = [pytest.mark.slow, pytest.mark.of_three_too, pytest.mark.xdist_group("jvm")]

Check = Callable[[Scenario], None]


@pytest.fixture(autouse=True)
def coordinators(two_brokers: tuple[Target, Target]) -> None:
    """Both brokers have their coordinator before anything is compared."""
    for target in two_brokers:
        peer = Peer(target)
        peer.ask_until(is_found, "find_coordinator", 3, key="g", key_type=0)
        peer.ask_until(
            lambda answer: not answer.groups[0].error_code,
            "offset_fetch",
            8,
            groups=[{"group_id": "g", "topics": None}],
        )
        peer.close()


def is_found(answer: Any) -> bool:
    return not answer.error_code


JOIN_VERSIONS = range(2, 10)
MEMBER_ID_REQUIRED = 79
ASSIGNMENT = b"an assignment"


def subscription(*topics: str) -> bytes:
    """The subscription of a consumer of these topics, version 0."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


class Member:
    """A member of a classic group. Its answers are compared where it `says`."""

    def __init__(self, peer: Peer, group_id: str, version: int = 9, **join: Any) -> None:
        self.peer = peer
        self.group_id = group_id
        self.version = version
        self.join_values: dict[str, Any] = {
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 30_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": subscription("t")}],
            **join,
        }
        self.member_id = ""
        self.generation_id = -1

    def join(self, **values: Any) -> Any:
        """Joins, if need be once more with the id that it is given."""
        answer = self.send_join(**values)
        if answer is not None and answer.error_code == MEMBER_ID_REQUIRED:
            answer = self.send_join(**values)
        return answer

    def send_join(self, **values: Any) -> Any:
        asked = {
            "group_id": self.group_id,
            "member_id": self.member_id,
            **self.join_values,
            **values,
        }
        answer = self.peer.ask("join_group", self.version, **asked)
        if answer is not None and answer.member_id:
            self.member_id = answer.member_id
            self.generation_id = max(answer.generation_id, self.generation_id)
        return answer

    def sync(self, version: int = 5, **values: Any) -> Any:
        asked = {
            **self.who(),
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [{"member_id": self.member_id, "assignment": ASSIGNMENT}],
            **values,
        }
        return self.peer.ask("sync_group", version, **asked)

    def settle(self) -> "Member":
        """Joins and syncs as the only member."""
        self.join()
        self.sync()
        return self

    def who(self) -> dict[str, Any]:
        return {
            "group_id": self.group_id,
            "generation_id": self.generation_id,
            "member_id": self.member_id,
            "group_instance_id": self.join_values.get("group_instance_id"),
        }


@contextmanager
def meanwhile(peer: Peer, action: Callable[[Peer], Any]) -> Iterator[Future[Any]]:
    """Lets another connection do what has to wait for this one."""
    other = peer.another("other")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(action, other)
        try:
            yield waiting
        finally:
            waiting.result(deadline_s(30))
            other.close()


def describe(peer: Peer, *group_ids: str, version: int = 6, **values: Any) -> Any:
    # Kafka's tells of a group what its followers have as well.
    return peer.ask_eventually("describe_groups", version, groups=list(group_ids), **values)


def has_state(state: str) -> Callable[[Any], bool]:
    return lambda answer: answer.groups[0].group_state == state


def await_state(peer: Peer, group_id: str, state: str) -> None:
    peer.ask_until(has_state(state), "describe_groups", 6, groups=[group_id])


@pytest.mark.parametrize("version", JOIN_VERSIONS)
def test_a_life(same_answers: Check, version: int) -> None:
    def scenario(peer: Peer) -> None:
        group_id = f"life{version}"
        member = Member(peer, group_id, version, reason="a reason")
        describe(peer, group_id)
        member.join()
        describe(peer, group_id)
        peer.ask("heartbeat", 4, **member.who())
        member.sync(min(version, 5))
        member.sync(min(version, 5))
        peer.ask("heartbeat", min(version, 4), **member.who())
        for each in range(7):
            describe(peer, group_id, "none", version=each, include_authorized_operations=True)
        member.send_join()
        describe(peer, group_id)
        member.sync()
        for states in ([], ["Stable"], ["stable", "Empty"], ["Unheard"], ["PreparingRebalance"]):
            for each in range(6):
                peer.ask("list_groups", each, states_filter=states)
        for types in (["classic"], ["Classic", "consumer"], ["unheard"], ["consumer"]):
            peer.ask("list_groups", 5, types_filter=types)
        peer.ask("delete_groups", 2, groups_names=[group_id, "none"])
        leave = {"group_id": group_id, "member_id": member.member_id}
        named = [{"member_id": member.member_id, "reason": "done"}]
        peer.ask("leave_group", min(version, 5), **leave, members=named)
        peer.ask("heartbeat", 4, **member.who())
        describe(peer, group_id)
        for each in range(3):
            peer.ask("delete_groups", each, groups_names=[group_id])
        describe(peer, group_id)

    same_answers(scenario)


def test_joins_that_are_refused(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        member = Member(peer, "refusals").settle()
        known = member.member_id
        bad: list[dict[str, Any]] = [
            {"group_id": ""},
            {"group_id": " "},
            {"group_id": "none", "member_id": "stranger"},
            {"member_id": "stranger"},
            {"session_timeout_ms": 0},
            {"session_timeout_ms": -1},
            {"session_timeout_ms": 5_999},
            {"session_timeout_ms": 1_800_001},
            {"rebalance_timeout_ms": -1},
            {"rebalance_timeout_ms": 0},
            {"protocols": []},
            {"protocol_type": ""},
            {"protocol_type": "connect"},
            {"protocols": [{"name": "other", "metadata": b""}]},
            {"group_id": "fresh", "protocols": []},
            {"group_id": "fresh", "protocol_type": ""},
            {"group_instance_id": "one", "member_id": "stranger"},
            {"member_id": known, "group_instance_id": "one"},
            {"member_id": known, "protocol_type": "connect"},
            {"member_id": known, "protocols": []},
        ]
        for version in (2, 5, 7, 9):
            for each in bad:
                asked = {"group_id": "refusals", "member_id": "", **member.join_values, **each}
                if version < 4 and not asked["member_id"]:
                    continue  # would join and wait for the member
                peer.ask("join_group", version, **asked)
            describe(peer, "refusals", "fresh", "none")

    same_answers(scenario)


def test_syncs_that_are_refused(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        member = Member(peer, "syncs").settle()
        bad: list[dict[str, Any]] = [
            {"group_id": ""},
            {"group_id": "none"},
            {"member_id": ""},
            {"member_id": "stranger"},
            {"generation_id": 0},
            {"generation_id": 2},
            {"generation_id": -1},
            {"group_instance_id": "one"},
            {"group_instance_id": ""},
            {"protocol_type": None},
            {"protocol_name": None},
            {"protocol_type": None, "protocol_name": None},
            {"protocol_type": "connect"},
            {"protocol_name": "other"},
            {"protocol_type": ""},
            {"protocol_name": ""},
            {"assignments": []},
            {"assignments": [{"member_id": "stranger", "assignment": b"x"}]},
        ]
        for version in range(6):
            for each in bad:
                member.sync(version, **each)
        member.send_join()
        for version in range(6):
            for each in bad[:-2]:
                member.sync(version, **each)
        describe(peer, "syncs")

    same_answers(scenario)


def test_heartbeats_and_leaves_that_are_refused(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        member = Member(peer, "beats").settle()
        bad: list[dict[str, Any]] = [
            {"group_id": ""},
            {"group_id": "none"},
            {"member_id": ""},
            {"member_id": "stranger"},
            {"generation_id": 0},
            {"generation_id": 7},
            {"generation_id": -1},
            {"group_instance_id": "one"},
            {"group_instance_id": ""},
        ]
        for version in range(5):
            for each in bad:
                peer.ask("heartbeat", version, **{**member.who(), **each})
        for version in range(3):
            for group_id in ("", "none", "beats"):
                for member_id in ("", "stranger"):
                    peer.ask("leave_group", version, group_id=group_id, member_id=member_id)
        stranger = {"member_id": "stranger"}
        by_instance = {"member_id": "", "group_instance_id": "one"}
        both = {"member_id": member.member_id, "group_instance_id": "one"}
        for version in range(3, 6):
            for group_id in ("", "none", "beats"):
                for members in (
                    [],
                    [stranger],
                    [{"member_id": ""}],
                    [stranger, by_instance, both],
                    [{"member_id": "", "group_instance_id": ""}],
                ):
                    peer.ask("leave_group", version, group_id=group_id, members=members)
        describe(peer, "beats")

    same_answers(scenario)


def test_promised_members(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        member = Member(peer, "promised")
        member.send_join()
        describe(peer, "promised")
        peer.ask("list_groups", 5)
        peer.ask("heartbeat", 4, **member.who())
        peer.ask("heartbeat", 4, **{**member.who(), "generation_id": 0})
        member.sync()
        member.sync(generation_id=0)
        peer.ask("delete_groups", 2, groups_names=["promised"])
        describe(peer, "promised")
        member.send_join()
        again = Member(peer, "promised")
        again.send_join()
        named = [{"member_id": again.member_id}]
        peer.ask("leave_group", 5, group_id="promised", members=named)
        again.send_join()

    same_answers(scenario)


def test_groups_while_they_rebalance(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        anna = Member(peer, "rebalances").settle()

        def second_joins(other: Peer) -> Any:
            bert = Member(other, "rebalances")
            bert.join()
            bert.sync(assignments=[])

        with meanwhile(peer, second_joins):
            await_state(peer, "rebalances", "PreparingRebalance")
            for version in range(7):
                describe(peer, "rebalances", version=version)
            peer.ask("heartbeat", 4, **anna.who())
            anna.sync()
            topics = [{"name": "t", "partitions": [{"partition_index": 0}]}]
            peer.ask("offset_delete", 0, group_id="rebalances", topics=topics)
            peer.ask("delete_groups", 2, groups_names=["rebalances"])
            peer.ask("list_groups", 5, states_filter=["PreparingRebalance"])
            anna.send_join()
            describe(peer, "rebalances")
            peer.ask("heartbeat", 4, **anna.who())
            peer.ask("delete_groups", 2, groups_names=["rebalances"])
            peer.ask("list_groups", 5, states_filter=["CompletingRebalance"])
            anna.sync()
        describe(peer, "rebalances")
        named = [{"member_id": anna.member_id}]
        peer.ask("leave_group", 5, group_id="rebalances", members=named)
        describe(peer, "rebalances")

    same_answers(scenario)


def test_blank_instances(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        for name in ("", ".", "a b", "x" * 250):
            Member(peer, f"blank{len(name)}", group_instance_id=name).settle()
            describe(peer, f"blank{len(name)}")

    same_answers(scenario)


@pytest.mark.parametrize("version", [5, 8, 9])
def test_static_members(same_answers: Check, version: int) -> None:
    def scenario(peer: Peer) -> None:
        group_id = f"static{version}"
        first = Member(peer, group_id, version, group_instance_id="one").settle()
        second = Member(peer, group_id, version, group_instance_id="one")
        second.join()
        describe(peer, group_id)
        peer.ask("heartbeat", 4, **second.who())
        peer.ask("heartbeat", 4, **first.who())
        first.sync()
        first.send_join()
        second.sync(assignments=[])
        unknown = {**second.who(), "group_instance_id": "two"}
        peer.ask("heartbeat", 4, **unknown)
        peer.ask("sync_group", 5, **unknown, protocol_type="consumer", protocol_name="range")
        second.send_join(group_instance_id="two")
        fenced = {"member_id": first.member_id, "group_instance_id": "one"}
        peer.ask("leave_group", 5, group_id=group_id, members=[fenced])
        by_instance = {"member_id": "", "group_instance_id": "one"}
        peer.ask("leave_group", 5, group_id=group_id, members=[by_instance, by_instance])
        describe(peer, group_id)

    same_answers(scenario)


def test_groups_that_are_not_consumers(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        worker = Member(peer, "connect", protocol_type="connect")
        worker.join()
        worker.sync(protocol_type="connect")
        describe(peer, "connect")
        peer.ask("list_groups", 5)
        topics = [{"name": "t", "partitions": [{"partition_index": 0}]}]
        peer.ask("offset_delete", 0, group_id="connect", topics=topics)
        peer.ask("consumer_group_describe", 1, group_ids=["connect"])
        named = [{"member_id": worker.member_id}]
        peer.ask("leave_group", 5, group_id="connect", members=named)
        peer.ask("offset_delete", 0, group_id="connect", topics=topics)
        describe(peer, "connect")

    same_answers(scenario)


def test_groups_that_are_not_there(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        for names in (["none"], [""], ["none", "none"], []):
            for version in range(7):
                describe(peer, *names, version=version, include_authorized_operations=version >= 3)
            for version in range(3):
                peer.ask("delete_groups", version, groups_names=names)
            for version in range(2):
                for wanted in (False, True):
                    peer.ask(
                        "consumer_group_describe",
                        version,
                        group_ids=names,
                        include_authorized_operations=wanted,
                    )
        peer.ask("consumer_group_describe", 1, group_ids=["none", "", "none", ""])

    same_answers(scenario)


def test_coordinators_are_found(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        for version in range(7):
            for key_type in (0, 3, -1):
                for keys in (["g"], [""], ["a", "b"], []):
                    asked: dict[str, Any] = {"coordinator_keys": keys, "key_type": key_type}
                    if version < 4:
                        asked = {"key": (keys or [""])[0], "key_type": key_type}
                    peer.ask("find_coordinator", version, **asked)

    same_answers(scenario)
