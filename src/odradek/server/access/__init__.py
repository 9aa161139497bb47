"""A broker's authorizer, client quotas and delegation tokens, if it has any: without them nothing
of the floor `security` is imported."""
