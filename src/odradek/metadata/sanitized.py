"""Names as Kafka writes them in places where slashes and commas have a meaning."""

from urllib.parse import quote


def sanitized(name: str) -> str:
    """A name that can be the name of a node in ZooKeeper; `unquote` reverses it."""
    if name in (".", ".."):  # Kafka leaves them as they are, and ZooKeeper refuses them
        return name.replace(".", "%2E")
    # Java's URLEncoder leaves one character less as it is.
    return quote(name, safe="").replace("~", "%7E")
