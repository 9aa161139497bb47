"""Compaction: chooses logs and segments, and filters their batches."""
