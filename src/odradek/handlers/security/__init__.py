"""SASL on connections that are past it, and the users of SCRAM."""
