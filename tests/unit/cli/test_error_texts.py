"""The text that a command prints of an error: its sentence, without numbers of the system or names
of codes.

If these fail, a user reads `[Errno 13]` or `NETWORK_EXCEPTION` in the middle of a sentence.
"""

import errno
import os
import urllib.error

import pytest

from odradek.cli import container
from odradek.cli.everyday.monitoring.scraping import ScrapeError, fetch_text
from odradek.cli.main import main
from odradek.client.errors import NetworkError
from odradek.errors import BrokerError, ErrorCode, LogDirFailure, reason_of, text_of

REFUSED = OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(errno.EACCES, "Permission denied", "x.csv"), "x.csv: Permission denied"),
        (OSError(errno.EACCES, "Permission denied"), "Permission denied"),
        (OSError(errno.EACCES, "Permission denied", ""), "Permission denied"),
        (OSError("no room in the archive"), "no room in the archive"),
        (ValueError("line 3: no JSON"), "line 3: no JSON"),
        (
            UnicodeEncodeError("utf-8", "gr\udcc3e", 2, 3, "surrogates not allowed"),
            r"'\udcc3' cannot be written in utf-8; is LANG a locale of UTF-8?",
        ),
        (NetworkError("no broker can be reached"), "no broker can be reached"),
        (
            BrokerError(ErrorCode.NETWORK_EXCEPTION, "orders"),
            f"orders: {ErrorCode.NETWORK_EXCEPTION.text}",
        ),
        (BrokerError(ErrorCode.NETWORK_EXCEPTION, ""), ErrorCode.NETWORK_EXCEPTION.text),
    ],
)
def test_the_text_of_an_error(error: Exception, text: str) -> None:
    assert text_of(error) == text


def test_a_disk_that_fails() -> None:
    """Producers and the log would be told a number."""
    broken = OSError(errno.EIO, "Input/output error", "/disk/orders-0")
    told = "log directory /disk failed: /disk/orders-0: Input/output error"
    assert str(LogDirFailure("/disk", broken)) == told
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert str(LogDirFailure("/disk", full)).endswith(f" failed: {os.strerror(errno.ENOSPC)}")


@pytest.mark.parametrize("error", [REFUSED, ValueError(os.strerror(errno.ECONNREFUSED))])
def test_the_reason_of_an_error(error: Exception) -> None:
    assert reason_of(error) == os.strerror(errno.ECONNREFUSED)


@pytest.mark.parametrize(
    "error", [REFUSED, urllib.error.URLError(REFUSED), urllib.error.URLError("Connection refused")]
)
def test_why_metrics_cannot_be_read(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    with pytest.raises(ScrapeError, match=r"does not answer \(Connection refused\); a broker"):
        fetch_text("http://127.0.0.1:9404")


def test_settings_of_a_container_that_cannot_be_read(
    capsys: pytest.CaptureFixture[str], tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "server.properties"
    file.mkdir()
    assert container.main(["/data", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"odradek: {file}: {os.strerror(errno.EISDIR)}\n"
    file.rmdir()
    monkeypatch.setenv("KAFKA_SSL_KEY_CREDENTIALS", "of-nobody")
    assert container.main(["/data", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said == f"odradek: /etc/kafka/secrets/of-nobody: {os.strerror(errno.ENOENT)}\n"


def test_a_command_that_the_system_stops(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "orders.csv")

    monkeypatch.setattr("odradek.cli.main.discard_output", lambda: None)
    monkeypatch.setattr("odradek.cli.help.run", no_space)
    assert main(["help", "topics"]) == 1
    assert capsys.readouterr().err == f"odradek: orders.csv: {os.strerror(errno.ENOSPC)}\n"
