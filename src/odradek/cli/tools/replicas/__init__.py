"""Replicas and leaders: `reassign-partitions`, `leader-election`."""
