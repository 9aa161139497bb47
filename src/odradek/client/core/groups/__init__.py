"""A member's side of a group: who is assigned what, and in which state the member is."""
