"""Writes records to topics in batches, exactly once if requested."""
