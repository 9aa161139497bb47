"""The APIs of delegation tokens. Their rules stand in `security.delegation_tokens`."""
