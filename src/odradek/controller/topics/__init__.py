"""Topics: names, partitions, placement."""
