"""Memory that requests and responses hold, bounded."""
