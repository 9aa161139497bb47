"""A member of a share group: its heartbeats, and its session with each broker."""
