"""Share groups: members read the same partitions together, record by record (KIP-932).

The coordinator assigns as it does in consumer groups, and members get what they are assigned at
once, since nobody has to give anything back before. It also has the states made of partitions that
a group begins to read, and deleted of those that it never will again.
"""
