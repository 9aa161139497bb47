"""`odradek consumer-groups` and `share-groups`: as `kafka-consumer-groups.sh` and
`kafka-share-groups.sh`."""
