"""Consumer groups against everything that may happen to them, in any order."""

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.coordinator.consumer.consumers import Consumer, ConsumerWorld, settle

NAMES = ("a", "b", "c", "d")
STEPS = (
    *("join", "beat", "beat", "beat", "lose", "repeat", "leave", "cling", "let go"),
    *("subscribe", "topics", "wait", "restart"),
)
steps = st.lists(
    st.tuples(st.sampled_from(STEPS), st.sampled_from(NAMES), st.integers(0, 3)), max_size=40
)
SUBSCRIPTIONS = (["t"], ["t", "u"], ["u"], [])
TOPICS = ({"t": 3, "u": 2}, {"t": 3, "u": 4}, {"t": 5}, {"u": 1})


class Play:
    """A world in which the steps happen, and the checks after each."""

    def __init__(self) -> None:
        self.world = ConsumerWorld(TOPICS[0])
        self.consumers = {
            name: Consumer(self.world, name, SUBSCRIPTIONS[1], rebalance_timeout_ms=9_000)
            for name in NAMES
        }

    def step(self, what: str, name: str, number: int) -> None:
        consumer = self.consumers[name]
        if what == "join":
            consumer.join()
        elif what == "beat":
            consumer.beat()
        elif what == "lose":  # the request arrives, the answer does not
            consumer.send(owned=consumer.owned)
        elif what == "repeat":
            consumer.send(owned=consumer.owned)
            consumer.beat()
        elif what == "leave":
            consumer.leave()
            consumer.owned = consumer.assigned = {}
        elif what in ("cling", "let go"):
            consumer.clings = what == "cling"
        elif what == "subscribe":
            consumer.topics = frozenset(SUBSCRIPTIONS[number])
            consumer.beat(subscribed_topic_names=consumer.topics)
        elif what == "topics":
            self.world.set_topics(**TOPICS[number])
        elif what == "wait":
            self.world.advance(5_000 * number)
        else:
            self.world.restart()
        if consumer.error is not None:  # fenced, or no member any more: it gives everything up
            consumer.owned = consumer.assigned = {}

    def check(self) -> None:
        """No partition has two owners, and what a member reads is known to be read by it."""
        if self.world.runtime.shard("g").registry.get("g") is None:
            return
        group = self.world.group()
        owners: dict[tuple[object, int], str] = {}
        for member in group.members.values():
            for partitions in (member.assigned, member.pending_revocation):
                for topic_id, indexes in partitions.items():
                    for index in indexes:
                        taken = owners.setdefault((topic_id, index), member.member_id)
                        assert taken == member.member_id, f"{index} of {taken}"
                        assert group.owner(topic_id, index) == member.member_id
            consumer = self.consumers[member.member_id]
            for topic_id, indexes in consumer.owned.items():
                for index in indexes:
                    assert owners.get((topic_id, index)) == member.member_id
        assert sum(map(len, group._owners.values())) == len(owners)


@given(steps)
def test_no_partition_ever_has_two_owners_and_the_group_settles(
    story: list[tuple[str, str, int]],
) -> None:
    """If this fails, records are read twice, or a group waits for ever."""
    play = Play()
    for what, name, number in story:
        play.step(what, name, number)
        play.check()
    everybody = list(play.consumers.values())
    for consumer in everybody:
        consumer.clings = False
        consumer.join()
    settle(*everybody, rounds=8)
    play.check()
    assert play.world.group().state_name == "Stable"
    read = {
        (topic, index)
        for consumer in everybody
        for topic, indexes in consumer.has.items()
        for index in indexes
    }
    wanted = {
        (name, index)
        for name, topic in play.world.metadata.image.topics.items()
        for index in range(len(topic.partitions))
        if any(name in (consumer.topics or ()) for consumer in everybody)
    }
    assert read == wanted
