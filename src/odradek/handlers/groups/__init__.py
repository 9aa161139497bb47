"""Members of groups and their offsets, and who coordinates them."""
