"""Names as Kafka writes them where slashes and commas have a meaning."""

from urllib.parse import quote


def sanitized(name: str) -> str:
    """A name that can be the name of a node in ZooKeeper; `unquote` has it back."""
    # Java's URLEncoder knows one sign less that may stay as it is.
    return quote(name, safe="").replace("~", "%7E")
