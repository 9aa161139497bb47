"""A port for a server of a test; the command line's own way to find one."""

from odradek.cli.free_port import free_port

__all__ = ["free_port"]
