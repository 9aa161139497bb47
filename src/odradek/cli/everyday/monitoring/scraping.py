"""Asks a broker's `metrics.listener`, for the commands that show its metrics."""

import os
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Final

from odradek.errors import reason_of

URL_VARIABLE: Final = "ODRADEK_METRICS_URL"
DEFAULT_URL: Final = "http://127.0.0.1:9404"
URL_HELP: Final = f"the broker's metrics.listener (default: ${URL_VARIABLE}, else {DEFAULT_URL})"
_PATIENCE_S: Final = 10.0


class ScrapeError(Exception):
    """No broker answers there, or it refuses; the message says why."""


def default_url() -> str:
    """The default address."""
    return os.environ.get(URL_VARIABLE) or DEFAULT_URL


def fetch_text(url: str) -> str:
    """Returns the text at a URL.

    Raises:
        ScrapeError: it cannot be read.
    """
    if not url.startswith(("http://", "https://")):
        raise ScrapeError(f"{url} is no http://HOST:PORT")
    try:
        with urllib.request.urlopen(url, timeout=_PATIENCE_S) as answer:
            text: str = answer.read().decode()
            return text
    except urllib.error.HTTPError as error:
        raise ScrapeError(error.read().decode(errors="replace").strip() or str(error)) from error
    except (OSError, ValueError, HTTPException) as error:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        raise ScrapeError(
            f"{url} does not answer ({reason_of(cause)}); a broker serves metrics with "
            "--set metrics.listener=http://127.0.0.1:9404"
        ) from error
