"""Where replicas are and who leads: `reassign-partitions`, `leader-election`."""
