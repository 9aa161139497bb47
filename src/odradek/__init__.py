"""Odradek: Apache Kafka's protocol, storage and semantics in Python."""

from odradek._pure import install_if_asked

install_if_asked(__name__)

__version__ = "0.1.0"
