"""TLS under the connections of a listener."""
