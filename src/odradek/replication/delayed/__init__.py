"""What waits in replication: a produce, a fetch, a DeleteRecords; and the purgatories of these."""
