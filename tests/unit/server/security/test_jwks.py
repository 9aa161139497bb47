"""If one of these fails, tokens are checked against old keys, or an issuer is asked without end."""

import json

import pytest
from tests.issuers import Issuer, drips, endless, is_silent, raw, says

from odradek.background import InlineBackground
from odradek.client.oauth.http import Patience
from odradek.clock import ManualClock
from odradek.config import BrokerConfig, ConfigError
from odradek.server.security.jwks import MIN_INTERVAL_MS, JsonWebKeys, read_keys
from odradek.timer import MockTimer

FIRST, SECOND = {"keys": [{"kid": "1"}]}, {"keys": [{"kid": "2"}]}


class Counting(InlineBackground):
    """Counts how often something is read."""

    def __init__(self):
        self.count = 0

    def submit(self, work, on_done, on_error):
        self.count += 1
        super().submit(work, on_done, on_error)


@pytest.fixture
def background():
    return Counting()


def keys_at(path, timer, background):
    return JsonWebKeys(BrokerConfig(), path.as_uri(), timer, background)


def test_keys_are_read_before_the_broker_serves_and_again_every_hour(tmp_path, background):
    path = tmp_path / "keys.json"
    path.write_text(json.dumps(FIRST))
    timer = MockTimer()
    keys = keys_at(path, timer, background)
    assert keys.current() == FIRST
    before = keys.current()
    timer.advance_clock(3_600_000)
    assert keys.current() is before
    path.write_text(json.dumps(SECOND))
    timer.advance_clock(3_600_000)
    assert keys.current() == SECOND
    keys.close()
    timer.advance_clock(10_000_000)
    assert background.count == 2


def test_an_unknown_key_has_them_read_at_once_but_not_again_and_again(tmp_path, background):
    path = tmp_path / "keys.json"
    path.write_text(json.dumps(FIRST))
    timer = MockTimer()
    keys = keys_at(path, timer, background)
    path.write_text(json.dumps(SECOND))
    for _ in range(100):
        keys.refresh()
    assert keys.current() == SECOND
    assert background.count == 1
    timer.advance_clock(MIN_INTERVAL_MS)
    keys.refresh()
    assert background.count == 2


def test_keys_that_cannot_be_read_stay_and_are_tried_for_again(tmp_path, background):
    path = tmp_path / "keys.json"
    path.write_text(json.dumps(FIRST))
    timer = MockTimer()
    keys = keys_at(path, timer, background)
    path.write_text("nonsense")
    keys.refresh()
    assert keys.current() == FIRST
    for _ in range(10):
        timer.advance_clock(100)
    path.write_text(json.dumps(SECOND))
    timer.advance_clock(10_000)
    assert keys.current() == SECOND
    assert background.count < 10


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"keys": 1}'])
def test_a_file_without_keys_refuses_the_start(tmp_path, content, background):
    path = tmp_path / "keys.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=r"jwks\.endpoint\.url"):
        keys_at(path, MockTimer(), background)


def test_what_is_no_url_refuses_the_start(background):
    with pytest.raises(ConfigError, match="https://"):
        JsonWebKeys(BrokerConfig(), "/etc/passwd", MockTimer(), background)


def test_keys_of_a_server_are_read_and_a_redirect_is_followed():
    with Issuer() as server:
        server.then = [says(302, Location="/elsewhere"), says(body=json.dumps(FIRST).encode())]
        assert read_keys(server.url) == FIRST
    assert [each.path for each in server.asked] == ["/token", "/elsewhere"]
    assert server.asked[0].method == "GET"


@pytest.mark.parametrize(
    ("behaviour", "text"),
    [
        (says(503), "answers 503"),
        (says(302), "answers 302"),
        (says(302, Location="file:///etc/passwd"), "leads to file:///etc/passwd, which is not"),
        (says(302, Location="https://other/"), "leads to https://other/, which is not"),
        (says(302, Location="http://other:port/"), "http://other:port/"),
        (says(body=b"<html>"), "has no JSON"),
        (says(body=b"[" * 100_000), "has no JSON"),
        (says(body=b"[]"), "has no set of keys"),
        (endless, "more than 1048576 bytes"),
        (raw(b"SSH-2.0-x\r\n"), "something else than HTTP"),
        (raw(b""), "before the end of its answer"),
    ],
)
def test_what_is_no_set_of_keys_is_told(behaviour, text):
    with Issuer() as server:
        server.then = [behaviour]
        with pytest.raises(OSError, match=text):
            read_keys(server.url)


def test_a_server_that_leads_on_and_on_is_left():
    with Issuer() as server:
        server.then = [says(302, Location="/token")] * 100
        with pytest.raises(OSError, match="leads on and on"):
            read_keys(server.url)
    assert len(server.asked) == 6


@pytest.mark.parametrize("behaviour", [drips, is_silent])
def test_a_server_that_drips_its_keys_does_not_hold_a_thread_for_ever(behaviour, monkeypatch):
    """The thread is one of those that sync the logs."""
    monkeypatch.setattr("odradek.server.security.jwks.PATIENCE", Patience(10_000, 50))
    with Issuer() as server:
        server.then = [behaviour]
        with pytest.raises(OSError, match="no whole answer within 50 ms"):
            read_keys(server.url)


def test_keys_are_read_again_on_a_clock_below_zero(tmp_path, background):
    """Tokens would be checked against old keys until 0."""
    path = tmp_path / "keys.json"
    path.write_text(json.dumps(FIRST))
    timer = MockTimer(clock=ManualClock(monotonic_ms=-(10**9)))
    keys = keys_at(path, timer, background)
    path.write_text(json.dumps(SECOND))
    timer.advance_clock(3_600_000)
    assert keys.current() == SECOND
    keys.close()
