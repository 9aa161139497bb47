"""What is to be read: options and bounds become ranges of offsets. Nothing is read here."""
