"""How Kafka's tools say things, since scripts look for their words, and how they read values."""
