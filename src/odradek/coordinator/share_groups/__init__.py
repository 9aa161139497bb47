"""Share groups: members read the same partitions together, record by record (KIP-932).

The coordinator assigns as it does in consumer groups, and members get their assignment at once,
since no other member has to give anything back first. It also has the states of partitions made
when a group begins to read them, and deleted when the group never will again.
"""
