"""Connections to brokers without their sockets: frames, handshake, login, traffic."""
