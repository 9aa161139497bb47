"""Committed offsets: kept, committed, fetched, deleted, expired."""
