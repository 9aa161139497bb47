"""The identity of clients: principals, and the mechanisms by which they are proved.

Rules without input and output: bytes go in, bytes and decisions come out. Sockets are the network
floor's, credentials and time are passed in.
"""
