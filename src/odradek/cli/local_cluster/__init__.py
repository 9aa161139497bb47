"""A cluster on one machine: `odradek cluster start`, `restart`, `stop`.

`start` stays in the foreground, as `odradek start` does: it starts a process for each broker, and a
ZooKeeper unless one is given, reports those that end, and stops all when it is asked to end. A file
in its directory (`state`) has what the other commands need to know.
"""
