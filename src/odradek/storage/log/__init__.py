"""The log of one replica: segments, appends, reads, retention and recovery."""
