"""A cluster on one machine: `odradek cluster start`, `restart`, `stop`.

`start` stays in the foreground, as `odradek start` does: it starts a process for each broker, and a
ZooKeeper unless one is given, reports processes that end, and stops all when it is told to. A file
in its directory (`state`) tells the other commands what they need.
"""
