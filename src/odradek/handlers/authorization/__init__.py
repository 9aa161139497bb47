"""The authorization before the handlers of a broker with an authorizer: nothing else imports it."""

from odradek.handlers.authorization.guarding import guarded

__all__ = ["guarded"]
