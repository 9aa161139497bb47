"""Members of groups and their offsets, and their coordinators."""
