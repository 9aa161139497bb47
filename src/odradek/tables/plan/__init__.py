"""Plans a read: options and bounds become ranges of offsets. No record is read here."""
