"""Breaks on purpose what keeps topics' ids, replicas and logs where others write to ZooKeeper."""

from pathlib import Path

import pytest
from tests.mutants import Mutants, Mutation

HERE = "tests/unit/controller/elected"
METADATA = "tests/unit/metadata"
# The nearest first.
TESTS = [
    f"{HERE}/test_asked_ids.py",
    f"{HERE}/test_dead_disks.py",
    f"{HERE}/test_topic_ids.py",
    f"{HERE}/test_reassigned_topics.py",
    f"{HERE}/test_removed_states.py",
    f"{HERE}/test_unreadable_nodes.py",
    f"{HERE}/test_overwritten_topics.py",
    "tests/property/metadata/test_reassignment_histories.py",
]
ELECTED = "controller/elected"
IMAGE = f"{ELECTED}/image_changes.py"
READER = f"{ELECTED}/topic_reader.py"
CHANNEL = f"{ELECTED}/broker_channel.py"
MUTATIONS = {
    "topics whose ids are asked for count as deleted": Mutation(
        READER, "difference(image, after, are_deleted=False)", "difference(image, after)"
    ),
    "a broker with a dead disk has said all that it knows": Mutation(
        CHANNEL, " and not self._is_full and all(served.values()):", " and not self._is_full:"
    ),
    "a dead disk has no log of the topic": Mutation(
        f"{ELECTED}/missing_ids.py", " and missing.isdisjoint(_owners(topic, led))", ""
    ),
    "partitions that the node leaves out are gone": Mutation(
        f"{ELECTED}/new_topics.py",
        "return self.content._replace(assignments=whole[: max([named, *led])])",
        "return self.content",
    ),
    "partitions that a tool adds are not taken": Mutation(
        READER,
        "            self._events.submit(lambda image: with_growth(image, topic))\n",
        "",
    ),
    "the node decides which replicas keep their logs": Mutation(
        IMAGE,
        "    if isr <= set(read.replicas):\n        return read.assignment\n",
        "    return read.assignment\n",
    ),
    "a state that somebody has removed is none": Mutation(
        IMAGE, "    return as_written(known, read.assignment)\n", "    return read\n"
    ),
    "what the controller has written is news": Mutation(
        READER, "return known is None or known.version < node.version", "return True"
    ),
    "the node says who the replicas of a known partition are": Mutation(
        IMAGE,
        "state = with_assignment(each, before.assignment)",
        "state = each",
    ),
    "a node is written without the states that go with it": Mutation(
        f"{ELECTED}/state_writer.py",
        "                yield _Write(operations, self._states(some), topic.name, node)\n",
        "                yield _Write(operations, [], topic.name, node)\n"
        "                yield _Write([], self._states(some))\n",
    ),
    "partitions that are not in the image are written away": Mutation(
        f"{ELECTED}/state_writer.py",
        "wanted = [*before, *node.content.assignments[len(before) :]]",
        "wanted = [*before]",
    ),
    "an order that failed is given again to a broker that has the replica back": Mutation(
        CHANNEL,
        "return partition is None or self.broker.id not in partition.replicas",
        "return True",
    ),
    "an order that comes late is obeyed": Mutation(
        IMAGE, "orders_may_be_late=True", "orders_may_be_late=False"
    ),
    "a broker outside of the replicas is in sync": Mutation(
        IMAGE,
        "isr = tuple(each for each in partition.isr if each in assignment.replicas)",
        "isr = partition.isr",
    ),
    "a newer request leaves the node as it is": Mutation(
        f"{ELECTED}/requested_reassignments.py",
        "        if left == self._requested or not self._context.is_open:\n",
        "        if self._context.epoch >= 0:\n",
    ),
    "a listener that raises leaves the queue busy": Mutation(
        "metadata/serial_queue.py",
        "            self._is_busy = False\n            raise",
        "            raise",
        tests=[
            f"{METADATA}/test_engine.py",
            f"{METADATA}/test_sessions.py",
            f"{METADATA}/zookeeper/test_handed_over.py",
        ],
    ),
}
MUTANTS = Mutants(MUTATIONS, TESTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS.names)
def test_a_mutant_is_noticed(tmp_path: Path, name: str) -> None:
    """The tests would let somebody break just this."""
    MUTANTS.hold(name, tmp_path)
