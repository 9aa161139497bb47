"""Share partitions: records of a partition handed out one by one to the members of a share group.

`share_partition` decides who gets which record, `in_flight` keeps what became of each, `states`
is the table of what may become of one. No I/O: what was decided is kept through a port
(`persister`), and locks end by the timer that is passed in.
"""
