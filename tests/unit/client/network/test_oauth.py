"""If one of these fails, a client gets no token, waits for one for ever, or tells a secret."""

import asyncio
import base64
import logging
import random
import threading

import pytest
from tests.issuers import (
    Issuer,
    closed_port,
    drips,
    endless,
    gives,
    is_silent,
    raw,
    says,
    token,
)

from odradek.client.aio.connection import login_terms
from odradek.client.core.network.login import Login
from odradek.client.errors import AuthenticationError, KafkaError, NetworkError
from odradek.client.oauth.issuer import shown_url
from odradek.client.oauth.login import KeptTokenLogin, TokenLogin
from odradek.client.oauth.token import RefreshRules, Token, parse_token
from odradek.client.security import client_security
from odradek.client.settings import ADMIN_SETTINGS, TOKEN_PROVIDER, ClientSettings
from odradek.clock import ManualClock
from odradek.config.definition import ConfigError
from odradek.security.sasl.oauthbearer import TokenRefused, parse_first

SECRET = "s3cr3t/+~ &"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
HTTP_TEXTS = {
    "HTML": (says(body=b"<html>Sign in</html>"), "something else than a JSON object"),
    "a list": (says(body=b"[1]"), "something else than a JSON object"),
    "deep JSON": (says(body=b"[" * 100_000), "something else than a JSON object"),
    "no token": (says(body=b'{"token_type":"Bearer"}'), "has no access_token"),
    "a number": (says(body=b'{"access_token":5}'), "has no access_token"),
    "a redirect": (says(302, Location="http://other/"), "302, a redirect, which is not followed"),
    "401": (says(401), "answers 401"),
    "no HTTP": (raw(b"SSH-2.0-x\r\n"), "something else than HTTP"),
    "too much": (endless, "more than 1048576 bytes"),
    "too much, announced": (says(body=b"{" * 2_000_000), "more than 1048576 bytes"),
    "expired": (gives(token(lifetime_s=-60)), r"it has expired \d+ s ago by the clock"),
    "no expiry": (gives(token(exp=None)), "no claim exp"),
    "a strange expiry": (gives(token(exp="soon")), "its claim exp is no time"),
    "nobody's": (gives(token(sub=None)), "no claim sub"),
    "opaque": (gives("abcdef"), "it is no JWT"),
    "with a line break": (gives("a.b\r\nX: y.c"), "it is no JWT"),
    "no JSON inside": (gives("a.b.c"), "it is no JSON in base64"),
}


def settings_of(url, **given):
    own = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.oauthbearer.client.credentials.client.id": "me",
        "sasl.oauthbearer.client.credentials.client.secret": SECRET,
        "sasl.login.retry.backoff.ms": 1,
        "sasl.login.retry.backoff.max.ms": 0,
        **{name.replace("__", "."): value for name, value in given.items()},
    }
    own = {name: value for name, value in own.items() if value is not None}
    return ClientSettings(ADMIN_SETTINGS, own, {})


def login_of(url, **given):
    return client_security(settings_of(url, **given)).login


def message_of(login):
    """The message by which a login shows its token."""
    return login._new_client().first()


def fetched(login):
    return login.fetch().result(20)


def authorization(asked):
    return base64.b64decode(asked.headers["Authorization"].removeprefix("Basic ")).decode()


def test_a_token_is_asked_for_with_the_client_s_id_and_secret_and_kept():
    with Issuer() as issuer:
        login = login_of(issuer.url, sasl__oauthbearer__scope="read write")
        assert login.at_hand() is None
        first = fetched(login)
        assert login.at_hand() is first
        _, shown = parse_first(message_of(first))
        assert parse_token(shown, "sub", 0)
    (asked,) = issuer.asked
    assert asked.method == "POST"
    assert asked.path == "/token"
    assert asked.form == {"grant_type": ["client_credentials"], "scope": ["read write"]}
    assert authorization(asked) == f"me:{SECRET}"
    assert asked.headers["Accept"] == "application/json"


@pytest.mark.parametrize("date_s", [0, 4e9])
def test_a_token_is_judged_by_the_machine_s_date(date_s, monkeypatch):
    """Tests that freeze time would have each token of a real issuer expired, or for ever good."""
    monkeypatch.setattr("time.time", lambda: date_s)
    with Issuer() as issuer:
        login = login_of(issuer.url)
        first = fetched(login)
        assert login.at_hand() is first
        issuer.then.append(gives(token(lifetime_s=-60)))
        with pytest.raises(AuthenticationError, match=r"it has expired \d+ s ago"):
            fetched(login_of(issuer.url))


def test_the_header_is_url_encoded_where_the_issuer_wants_that():
    with Issuer() as issuer:
        fetched(login_of(issuer.url, sasl__oauthbearer__header__urlencode="true"))
    assert authorization(issuer.asked[0]) == "me:s3cr3t%2F%2B~+%26"


def test_the_older_way_of_a_jaas_line_with_extensions_for_the_broker():
    line = (
        f'{MODULE} clientId="old" clientSecret="o1d" scope="a" '
        'extension_logicalCluster="lkc-1" extension_identityPoolId="pool";'
    )
    with Issuer() as issuer:
        login = login_of(
            issuer.url,
            sasl__oauthbearer__client__credentials__client__id=None,
            sasl__oauthbearer__client__credentials__client__secret=None,
            sasl__jaas__config=line,
        )
        message = message_of(fetched(login))
    assert authorization(issuer.asked[0]) == "old:o1d"
    assert issuer.asked[0].form["scope"] == ["a"]
    assert message.endswith(b"\x01logicalCluster=lkc-1\x01identityPoolId=pool\x01\x01")


def test_a_file_has_a_token_and_is_read_when_the_next_one_is_due(tmp_path):
    file = tmp_path / "a token"
    file.write_text(f"{token('alice', lifetime_s=100)}\n")
    url = f"file://{tmp_path}/a%20token"
    login = login_of(url, sasl__oauthbearer__client__credentials__client__id=None)
    assert fetched(login)
    file.write_text("")
    with pytest.raises(AuthenticationError, match="a token has no token"):
        fetched(login_of(url))
    file.unlink()
    with pytest.raises(NetworkError, match="a token: No such file or directory"):
        fetched(login_of(url))


@pytest.mark.parametrize("answer", HTTP_TEXTS)
def test_an_answer_without_a_good_token_is_told_at_once_and_in_one_sentence(answer):
    behaviour, text = HTTP_TEXTS[answer]
    with Issuer() as issuer:
        issuer.then = [behaviour]
        with pytest.raises(AuthenticationError, match=text) as caught:
            fetched(login_of(issuer.url, sasl__login__retry__backoff__max__ms=60_000))
    assert len(issuer.asked) == 1
    assert "\n" not in caught.value.message
    assert not caught.value.retriable


def test_an_issuer_that_cannot_just_now_is_asked_again():
    with Issuer() as issuer:
        cut_off = raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")
        cut_in_chunk = raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{")
        issuer.then = [says(503), says(429), raw(b""), says(500), cut_off, cut_in_chunk]
        assert fetched(login_of(issuer.url, sasl__login__retry__backoff__max__ms=60_000))
    assert len(issuer.asked) == 7


@pytest.mark.parametrize("behaviour", [drips, is_silent])
def test_an_answer_that_does_not_come_to_its_end_is_waited_for_so_long_and_no_longer(behaviour):
    """Else one slow issuer holds a thread, and whoever wants to log in, for ever."""
    with Issuer() as issuer:
        issuer.then = [behaviour]
        with pytest.raises(NetworkError, match="no whole answer within 50 ms"):
            fetched(login_of(issuer.url, sasl__login__read__timeout__ms=50))


def test_nobody_at_the_endpoint_is_told_without_the_query_and_the_user():
    url = f"http://u:pw@127.0.0.1:{closed_port()}/t?key=hidden"
    with pytest.raises(NetworkError, match="Connection refused") as caught:
        fetched(login_of(url))
    assert "hidden" not in caught.value.message
    assert "pw" not in caught.value.message


def test_an_issuer_that_repeats_the_secret_does_not_get_it_into_a_log():
    basic = base64.b64encode(f"me:{SECRET}".encode()).decode()
    said = f'{{"error":"invalid_client","error_description":"no {SECRET} or {basic}\\nINFO fine"}}'
    with Issuer() as issuer:
        issuer.then = [says(401, said.encode())]
        login = login_of(issuer.url)
        with pytest.raises(AuthenticationError, match="invalid_client: no ") as caught:
            fetched(login)
    text = f"{caught.value}{login!r}{login.__dict__!r}"
    assert SECRET not in text
    assert basic not in text
    assert "\n" not in text


def test_secrets_and_tokens_are_shown_by_nothing():
    with Issuer() as issuer:
        issuer.make_token = lambda: token("very-secret-subject")
        login = login_of(issuer.url)
        _, shown = parse_first(message_of(fetched(login)))
    text = f"{login!r}{login.__dict__!r}{login._held!r}{login._ask!r}{login._ask.__self__!r}"
    assert SECRET not in text
    assert shown not in text


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"sasl__oauthbearer__token__endpoint__url": "ftp://x/"}, "https:, http: or file:"),
        ({"sasl__oauthbearer__token__endpoint__url": "https:///x"}, "https:, http: or file:"),
        ({"sasl__oauthbearer__token__endpoint__url": "http://x:99999/"}, "https:, http: or file:"),
        ({"sasl__oauthbearer__token__endpoint__url": "http://x/a b"}, "https:, http: or file:"),
        ({"sasl__oauthbearer__token__endpoint__url": "file:"}, "https:, http: or file:"),
        ({"sasl__oauthbearer__client__credentials__client__id": None}, "clientId in sasl.jaas"),
        ({"sasl__oauthbearer__client__credentials__client__secret": None}, "clientSecret in sasl"),
        ({"sasl__jaas__config": f'{MODULE} extension_auth="{SECRET}";'}, "is not auth"),
        ({"sasl__jaas__config": f'{MODULE} extension_a1="x";'}, "letters alone"),
        ({"sasl__jaas__config": f'{MODULE} extension_a="\x01auth=x";'}, "signs of ASCII"),
        ({"sasl__login__refresh__window__factor": "0.4"}, "at least 0.5"),
        ({"sasl__oauthbearer__jwt__retriever__class": "x.JwtBearerJwtRetriever"}, "must be one of"),
    ],
)
def test_settings_that_do_not_go_together_are_refused_without_the_secret(given, text):
    with pytest.raises(ConfigError, match=text) as caught:
        login_of(**{"url": "http://x/", **given})
    assert SECRET not in str(caught.value)


def test_kafka_s_names_of_classes_are_taken():
    name = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    assert login_of("http://x/", sasl__login__callback__handler__class=name)


def test_an_issuer_over_tls_is_trusted_by_the_client_s_trust_store_and_by_its_name_alone():
    from odradek.server.in_process.protected.authority import CertificateAuthority
    from odradek.tls import KeyStore, TlsSettings, server_context

    authority = CertificateAuthority()
    own = authority.issue("issuer", ("127.0.0.1",))
    other = authority.issue("issuer", ("example.org",))

    def context(certificate):
        key_store = KeyStore(key=certificate.key, certificate_chain=certificate.certificate)
        return server_context(TlsSettings(key_store))

    trusted = {
        "ssl__truststore__type": "PEM",
        "ssl__truststore__certificates": authority.certificate,
    }
    options = f'ssl.truststore.type="PEM" ssl.truststore.certificates="{authority.certificate}"'
    with Issuer(context(own)) as issuer:
        assert fetched(login_of(issuer.url, **trusted))
        assert fetched(login_of(issuer.url, sasl__jaas__config=f"{MODULE} {options};"))
        with pytest.raises(AuthenticationError, match=r"TLS: .*certificate"):
            fetched(login_of(issuer.url))
        plain = issuer.url.replace("https", "http")
        with pytest.raises(KafkaError, match="the token endpoint"):
            fetched(login_of(plain))
    assert len(issuer.asked) == 2
    with (
        Issuer(context(other)) as issuer,
        pytest.raises(AuthenticationError, match=r"TLS: .*IP address mismatch"),
    ):
        # Of brokers names may go unchecked; an issuer is sent the secret.
        fetched(login_of(issuer.url, ssl__endpoint__identification__algorithm="", **trusted))
    assert issuer.asked == []


# --- when the next token is asked for -------------------------------------------------------------


class Source:
    """Gives tokens, or fails, on a clock that a test moves."""

    def __init__(self):
        self.clock = ManualClock(wall_ms=1_000_000)
        self.failure = None
        self.lifetime_s = 3600
        self.asked = 0
        self.login = KeptTokenLogin(
            self.ask, 10_000, {}, RefreshRules(), "sub", self.clock.wall_ms, Zero()
        )

    def ask(self):
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        now_s = self.clock.wall_ms() / 1000
        return token(iat=now_s, exp=now_s + self.lifetime_s)


class Zero(random.Random):
    def random(self):
        return 0.0


def test_a_token_is_asked_for_anew_at_its_part_of_its_life_and_not_before():
    source = Source()
    fetched(source.login)
    source.clock.advance(2_879_999)
    assert source.login.at_hand()
    source.clock.advance(1)
    assert source.login.at_hand() is None
    fetched(source.login)
    assert source.asked == 2


def test_while_its_token_is_good_a_client_does_not_mind_an_issuer_that_is_away(caplog):
    source = Source()
    first = fetched(source.login)
    source.clock.advance(3_000_000)
    source.failure = NetworkError("the issuer is away")
    assert fetched(source.login) is first
    assert "No new token; the one in use expires in 600 s: the issuer is away" in caplog.text
    assert source.login.at_hand() is first
    source.clock.advance(10_000)
    assert source.login.at_hand() is None
    source.clock.advance(600_000)
    with pytest.raises(NetworkError, match="the issuer is away"):
        fetched(source.login)


def test_a_token_that_could_not_be_replaced_is_not_shown_after_its_end():
    """Fails when a broker refuses, for good, who would have had a token had it asked once more."""
    source = Source()
    first = fetched(source.login)
    source.clock.advance(3_595_000)
    source.failure = NetworkError("the issuer is away")
    assert fetched(source.login) is first
    source.clock.advance(4_999)
    assert source.login.at_hand() is first
    source.clock.advance(1)
    assert source.login.at_hand() is None
    source.failure = None
    assert fetched(source.login) is not first


def test_who_looked_just_before_a_token_came_has_nobody_asked_again():
    source = Source()
    first = fetched(source.login)
    assert fetched(source.login) is first
    assert source.asked == 1


def test_a_failure_is_shared_by_who_tries_the_next_broker_at_once():
    source = Source()
    source.failure = NetworkError("the issuer is away")
    for _ in range(3):
        with pytest.raises(NetworkError):
            fetched(source.login)
    assert source.asked == 1
    source.clock.advance(1_000)
    source.failure = None
    assert fetched(source.login)


@pytest.mark.parametrize(
    ("begins_s", "expires_s", "chance", "expected_s"),
    [
        (0, 3600, 0.0, 2880),
        (0, 3600, 1.0, 3060),
        (None, 3600, 0.0, 2880),
        (-3000, 600, 0.0, 60),  # at least the period, though it is late
        (0, 100_000, 1.0, 85_000),
        (0, 1_000, 1.0, 700),  # the buffer before its end
        (0, 300, 0.0, 240),  # too short for period and buffer
        (0, 1, 0.0, 0.8),
    ],
)
def test_the_rules_of_refreshing_are_kafka_s(begins_s, expires_s, chance, expected_s):
    begins_ms = None if begins_s is None else begins_s * 1000
    found_ms = RefreshRules().refresh_at_ms(Token("", begins_ms, expires_s * 1000), 0, chance)
    assert found_ms == expected_s * 1000


def test_many_connections_share_one_question_and_the_loop_goes_on_meanwhile():
    """A function that blocks would stop everything that the loop has to do, heartbeats too."""
    asked, may_answer = [], threading.Event()

    def provider():
        asked.append(threading.current_thread())
        may_answer.wait(20)
        return "a.b.c"

    login = client_security(settings_of(None, **{TOKEN_PROVIDER: provider})).login

    async def work():
        waiting = [asyncio.ensure_future(login_terms(login)) for _ in range(20)]
        gone = waiting.pop()
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        assert len(asked) == 1
        may_answer.set()
        return await asyncio.gather(*waiting)

    terms = asyncio.run(work())
    assert len({id(each) for each in terms}) == 1
    assert asked[0] is not threading.main_thread()
    assert fetched(login) is not terms[0]


def this_module_s_token():
    return "a.b.c"


def test_a_function_can_be_named():
    """A function itself travels neither in a file nor to another process."""
    name = f"{__name__}:{this_module_s_token.__name__}"
    login = client_security(settings_of(None, **{TOKEN_PROVIDER: name})).login
    assert b"a.b.c" in message_of(fetched(login))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("json", "package.module:function"),
        ("nosuch_module:token", "nosuch_module"),
        ("json:nosuch", "nosuch"),
        ("json:", "not a function"),
        ("json:__name__", "not a function"),
        ("js on:loads", "invalid format"),
        (3, "not a function"),
    ],
)
def test_a_function_that_is_not_there_is_refused(name, reason):
    with pytest.raises(ConfigError, match=f"for configuration {TOKEN_PROVIDER}: .*{reason}"):
        settings_of(None, **{TOKEN_PROVIDER: name})


def test_a_token_in_place_of_its_function_is_not_shown():
    """It would be in the log of whoever mistook the setting for that of a token."""
    with pytest.raises(ConfigError) as refused:
        settings_of(None, **{TOKEN_PROVIDER: "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0."})
    assert "eyJ" not in str(refused.value)


def test_a_module_that_cannot_be_imported_is_refused(tmp_path, monkeypatch):
    """Whatever it raises, a tool would end with a traceback."""
    (tmp_path / "no_tokens_here.py").write_text("raise RuntimeError('no key in the environment')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=f"{TOKEN_PROVIDER}: .*no key in the environment"):
        settings_of(None, **{TOKEN_PROVIDER: "no_tokens_here:token"})


def test_a_function_that_gives_no_token_is_not_waited_for_for_ever():
    may_end = threading.Event()
    login = TokenLogin(lambda: str(may_end.wait(20)), limit_ms=10)
    try:
        with pytest.raises(NetworkError, match="no token was given within 10 ms"):
            asyncio.run(login_terms(login))
    finally:
        may_end.set()


@pytest.mark.parametrize("failure", [OSError("it is away"), SystemExit(1)])
def test_a_function_that_fails_is_told_and_may_be_asked_again(failure):
    def provider():
        raise failure

    login = TokenLogin(provider, 10_000)
    for _ in range(2):
        with pytest.raises(NetworkError, match=r"the token provider failed: (OSError|SystemExit)"):
            fetched(login)
    assert NetworkError("").retriable


def test_an_opaque_token_of_a_user_s_function_is_shown_as_it_is():
    login = fetched(TokenLogin(lambda: "opaque", 10_000))
    assert isinstance(login, Login)
    assert parse_first(message_of(login)) == ("", "opaque")


@pytest.mark.parametrize("text", ["", ".", "..", "a.b", "a.b.c.d", "\x00.b.c", "é.b.c", "a.[].c"])
def test_what_is_no_token_is_refused(text):
    with pytest.raises(TokenRefused):
        parse_token(text, "sub", 0)


def test_a_login_logs_no_token(caplog):
    caplog.set_level(logging.DEBUG)
    with Issuer() as issuer:
        _, shown = parse_first(message_of(fetched(login_of(issuer.url))))
    assert shown not in caplog.text
    assert SECRET not in caplog.text


def test_a_url_is_shown_without_secrets() -> None:
    """A log line names a password; or the line about an unreadable URL cannot be written."""
    assert shown_url("https://a:b@issuer:1/keys?key=c") == "https://issuer:1/keys"
    assert shown_url("https://[::1/keys") == "a URL that cannot be read"
