"""Compaction: which logs, which segments, and what is kept of a batch."""
