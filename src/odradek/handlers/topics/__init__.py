"""Topics and their partitions: made, grown, emptied, deleted, described."""
