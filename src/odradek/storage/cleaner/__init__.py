"""Compaction: which logs, which segments, and what becomes of a batch."""
