"""Groups of the newer consumer protocol (KIP-848): the coordinator assigns partitions.

Members only ever send heartbeats. They arrive in `consumer_groups`; `group_change` changes a group,
`reconciliation` moves a member from its current to its target assignment, `group` and `member` are
the state that the log describes.
"""
