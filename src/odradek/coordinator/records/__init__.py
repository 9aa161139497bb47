"""The records of `__consumer_offsets` and `__transaction_state`, in Kafka's formats."""
