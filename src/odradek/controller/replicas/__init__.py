"""Replicas: leaders, elections, reassignments."""
