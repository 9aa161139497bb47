"""Replication, step by step on a clock that stands still between the steps, as a picture.

Three brokers in this process have a partition with three replicas. One of them is cut off while a
producer waits for all, then the leader dies, then both come back. `python -m examples.replication`
draws what was seen; docs/concepts/replication.md explains it.
"""
