"""The APIs that describe and change ACLs."""
