"""A member's side of a group: assignments, and the member's state."""
