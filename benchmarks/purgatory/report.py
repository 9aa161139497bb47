"""The report."""


def make(bootstrap_server: str | None) -> None: ...
