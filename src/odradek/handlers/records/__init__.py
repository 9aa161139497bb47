"""Produce, Fetch and ListOffsets, and what a batch passes before it is appended."""
