"""The connection to an ensemble by kazoo: the login, TLS, ACLs of nodes, and sessions."""

from odradek.metadata.store import MetadataStoreError


def require_kazoo() -> None:
    """Checks that the client library is there, before another module of this package is imported.

    Raises:
        MetadataStoreError: it is missing.
    """
    try:
        import kazoo  # noqa: F401
    except ImportError as error:
        raise MetadataStoreError(
            "ZooKeeper needs the client library kazoo: pip install 'odradek[zookeeper]'"
        ) from error
