"""Keeping up with leaders: what a broker fetches for the replicas that it does not lead.

`ReplicaFetcherManager` decides who is fetched from whom, a `ReplicaFetcher` fetches from one
leader, `FetchSession` remembers what that leader was told, `local_replica` changes the log.
No socket here: a leader is reached through a `LeaderChannel`.
"""
