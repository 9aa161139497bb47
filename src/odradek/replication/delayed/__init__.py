"""Delayed operations of replication: a produce, a fetch, a DeleteRecords; and their purgatories."""
