"""The way of a broker to the others of its cluster."""
