"""The identity of clients: principals, and the mechanisms that prove them.

Rules without input and output: bytes go in, bytes and decisions come out. Sockets are the network
floor's, credentials and time are passed in.
"""
