"""A cluster on one machine: `odradek cluster start`, `restart`, `stop`.

`start` stays in the foreground, as `odradek start` does: it starts a process for each broker, and a
ZooKeeper unless one is given, tells of those that end, and takes all down when it is told to end.
What the other commands need to know of it is in a file in its directory (`state`).
"""
