"""Groups of the newer consumer protocol (KIP-848): the coordinator assigns partitions.

Members only ever send heartbeats. `consumer_groups` is where they arrive; `group_change` is
what they do to a group, `reconciliation` how a member gets from what it has to what it should
have, `group` and `member` the state that the log tells of.
"""
