"""How brokers show themselves: at a prompt in a line, in a notebook as a table."""

from typing import Final

from odradek.server.broker import BrokerServer

SHOWN_TOPICS: Final = 5


def topics_in_words(server: BrokerServer) -> str:
    """The topics of a broker, or how many more there are than these."""
    names = sorted(
        name for name, topic in server.metadata.image.topics.items() if not topic.is_internal
    )
    shown = names[:SHOWN_TOPICS]
    if len(names) > len(shown):
        shown.append(f"{len(names) - len(shown)} more")
    return f"topics: {', '.join(shown)}" if shown else "no topics"
