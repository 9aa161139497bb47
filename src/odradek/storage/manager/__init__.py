"""All logs of a broker: opened, checkpointed, moved and deleted over `log.dirs`."""
