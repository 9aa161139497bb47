"""The share coordinator: stores the states of the records that share groups were handed out.

Kept in `__share_group_state`, on the runtime that groups and transactions use. The leader of a
partition writes here what the members of a group have acknowledged; it reads it when it begins.
"""
