"""What groups whose coordinator assigns partitions have in common."""
