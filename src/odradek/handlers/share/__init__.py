"""The APIs of share groups: their members', their states', and what operators do with them."""
