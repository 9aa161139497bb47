"""Replicas of partitions: their leaders, what is committed, and the requests that wait for it.

`Partition` holds the rules of one partition, `InSyncReplicas` the arithmetic behind them,
`ReplicaManager` finds partitions and parks what must wait, and the `Delayed…` classes are
the waiting itself. The floor knows storage below it and nothing of requests, connections
or clients above it. Import the names from their modules.
"""
