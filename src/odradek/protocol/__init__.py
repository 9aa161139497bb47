"""The wire, sans I/O: frames, headers, and messages between bytes and values.

The hot messages (Produce, Fetch, ListOffsets) have hand-written codecs that are compiled;
every other message goes through `messages`, a thin wrapper around kio's generated classes.
Nothing here knows what a request means.
"""
