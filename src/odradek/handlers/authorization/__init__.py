"""The authorization before the handlers; imported only by a broker with an authorizer."""

from odradek.handlers.authorization.guarding import guarded

__all__ = ["guarded"]
