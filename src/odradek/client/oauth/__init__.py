"""OAUTHBEARER tokens that a client requests itself: their sources, time-outs and renewal."""
