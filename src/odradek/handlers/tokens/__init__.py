"""The APIs of delegation tokens. `security.delegation_tokens` has their rules."""
