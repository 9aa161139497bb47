"""Wrong usage of our command line beside that of Apache Kafka's tools, on a broker of ours.

If this fails, a mistake is answered otherwise than somebody who knows Kafka's tools expects, or is
taken for something else and done.
"""

import asyncio
from collections.abc import Callable

import pytest
from tests.wire.client.tools.comparing import usage
from tests.wire.client.tools.comparing.answers import Ours, told_otherwise
from tests.wire.java_tools import JavaTools

from odradek.client import Admin
from odradek.client.core.admin_types import NewTopic


@pytest.mark.slow
def test_wrong_usage_is_answered_as_by_kafkas_tools(
    bootstrap: str, java_tools: JavaTools, ours: Ours, names: Callable[[str], str]
) -> None:
    topic, group = names("usage"), names("none")

    async def make_topic() -> None:
        async with Admin(bootstrap) as admin:
            await admin.create_topics([NewTopic(topic, 1, 1)])
            # Brings the coordinator up, for which Kafka's tool would wait five seconds and no more.
            await admin.list_group_offsets([group])

    asyncio.run(make_topic())
    failed: list[str] = []
    for line in usage.lines():
        words, _, text = line.partition(" <<< ")
        tool, *words = words.format(servers=bootstrap, topic=topic, group=group).split()
        both = [run(tool, words, text) for run in (java_tools, ours)]
        failed += told_otherwise(line, *both, topic, group)
    assert not failed, "\n\n".join(failed)
