"""What is decided about topics: names, partitions, placement."""
