"""Schedule topics: records that are released into another topic when they are due."""
