"""Coordinators: groups and their offsets, kept as replicated state machines.

A command looks at the state and returns records and a response; the records are appended to
an internal topic; when they are committed they are replayed, which is the only thing that
changes durable state, and the response leaves. A restart replays the same records, so that
serving, failing over and testing share one path.
"""
