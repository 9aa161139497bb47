"""The authorizer: decides by ACLs what a principal may do. Pure; imported only when a broker has
one."""

from odradek.security.authorizer.authorizer import Authorizer, Caller
from odradek.security.authorizer.settings import make_authorizer

__all__ = ["Authorizer", "Caller", "make_authorizer"]
