"""`odradek consumer-groups`: what `kafka-consumer-groups.sh` does."""
