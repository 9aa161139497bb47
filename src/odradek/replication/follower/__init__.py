"""Follows leaders: a broker's fetches for the replicas that it does not lead.

`ReplicaFetcherManager` decides who is fetched from whom, a `ReplicaFetcher` fetches from one
leader by the session that `protocol.fetch_session` keeps, `local_replica` changes the log.
No socket here: a leader is reached through a `LeaderChannel`.
"""
