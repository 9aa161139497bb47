"""Membership of a consumer in its group, by either protocol.

A membership keeps itself alive in the background (heartbeats), but takes partitions from the
consumer and gives them to it only while the consumer reads: then all earlier records are processed,
and can be committed.
"""

from odradek.client.aio.group.classic import ClassicMembership
from odradek.client.aio.group.membership import CommitsInTurn, Membership, RebalanceListener
from odradek.client.aio.group.modern import ConsumerProtocolMembership

__all__ = [
    "ClassicMembership",
    "CommitsInTurn",
    "ConsumerProtocolMembership",
    "Membership",
    "RebalanceListener",
]
