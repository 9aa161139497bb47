"""The client on an event loop.

Every client belongs to the loop on which it was started and is used from there only.
"""
