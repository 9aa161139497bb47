"""Produce, Fetch and ListOffsets, and the steps before a batch is appended."""
