"""Java property files, and the values that they take from elsewhere."""
