"""The APIs of share groups: for their members, their states, and operators."""
