"""`odradek consumer-groups` and `share-groups`: what `kafka-consumer-groups.sh` and
`kafka-share-groups.sh` do."""
