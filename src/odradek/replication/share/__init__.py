"""Share partitions: records of a partition handed out one by one to the members of a share group.

`share_partition` decides which member gets which record, `in_flight` keeps the state of each,
`states` is the table of the states. No I/O: decisions are stored through a port (`persister`), and
locks end by the timer that is passed in.
"""
