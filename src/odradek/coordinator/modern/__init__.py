"""Code shared by groups whose coordinator assigns partitions.

Their members send heartbeats only and come from epoch to epoch (`member_state`, `deadlines`); the
group's epoch rises with its members and with the topics that they read (`topic_metadata`);
assignments are sets of partitions by topic id (`partitions`), made by `assignors`.
"""
