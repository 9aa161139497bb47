"""Settings of SASL with tickets and tokens of a provider: Kerberos and OAuth."""

from typing import Final

from odradek.config.definition import DynamicMode, Setting, SettingType

BOOLEAN: Final = SettingType.BOOLEAN
STRING: Final = SettingType.STRING
INT: Final = SettingType.INT
SHORT: Final = SettingType.SHORT
LONG: Final = SettingType.LONG
DOUBLE: Final = SettingType.DOUBLE
LIST: Final = SettingType.LIST
CLASS: Final = SettingType.CLASS
PASSWORD: Final = SettingType.PASSWORD
PER_BROKER: Final = DynamicMode.PER_BROKER

IDENTITY_SETTINGS: Final = [
    Setting(
        "sasl.kerberos.kinit.cmd",
        STRING,
        "/usr/bin/kinit",
        "The program that gets a Kerberos ticket.",
        dynamic=PER_BROKER,
    ),
    Setting(
        "sasl.kerberos.min.time.before.relogin",
        LONG,
        60_000,
        "How long a Kerberos login rests at least before the next.",
        dynamic=PER_BROKER,
    ),
    Setting(
        "sasl.kerberos.ticket.renew.jitter",
        DOUBLE,
        0.05,
        "By which random part the renewal of a ticket is moved.",
        dynamic=PER_BROKER,
    ),
    Setting(
        "sasl.kerberos.ticket.renew.window.factor",
        DOUBLE,
        0.8,
        "After which part of its life a ticket is renewed.",
        dynamic=PER_BROKER,
    ),
    Setting(
        "sasl.login.connect.timeout.ms",
        INT,
        None,
        "How long connecting to the provider of identities may take.",
    ),
    Setting(
        "sasl.login.read.timeout.ms",
        INT,
        None,
        "How long an answer of the provider of identities may take.",
    ),
    Setting(
        "sasl.login.refresh.buffer.seconds",
        SHORT,
        300,
        "How long before its end a credential is renewed at the latest.",
        dynamic=PER_BROKER,
    ),
    Setting(
        "sasl.login.refresh.min.period.seconds",
        SHORT,
        60,
        "How long a login rests at least before its credential is renewed.",
        dynamic=PER_BROKER,
    ),
    Setting(
        "sasl.login.refresh.window.factor",
        DOUBLE,
        0.8,
        "After which part of its life a credential is renewed.",
        dynamic=PER_BROKER,
    ),
    Setting(
        "sasl.login.refresh.window.jitter",
        DOUBLE,
        0.05,
        "By which random part that renewal is moved.",
        dynamic=PER_BROKER,
    ),
    Setting(
        "sasl.login.retry.backoff.max.ms",
        LONG,
        10_000,
        "How long a failed login waits at most before the next attempt.",
    ),
    Setting(
        "sasl.login.retry.backoff.ms",
        LONG,
        100,
        "How long a failed login waits at first before the next attempt.",
    ),
    Setting(
        "sasl.oauthbearer.assertion.algorithm",
        STRING,
        "RS256",
        "How the broker's own assertion is signed.",
        choices=("ES256", "RS256"),
        ignore_case=True,
    ),
    Setting(
        "sasl.oauthbearer.assertion.claim.aud",
        STRING,
        None,
        "The audience that the assertion names.",
    ),
    Setting(
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        INT,
        300,
        "For how long the assertion is valid.",
        at_least=0,
        at_most=86_400,
    ),
    Setting(
        "sasl.oauthbearer.assertion.claim.iss",
        STRING,
        None,
        "The issuer that the assertion names.",
    ),
    Setting(
        "sasl.oauthbearer.assertion.claim.jti.include",
        BOOLEAN,
        False,
        "Whether the assertion has an id of its own.",
    ),
    Setting(
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        INT,
        60,
        "From how long ago the assertion is valid.",
        at_least=0,
        at_most=3_600,
    ),
    Setting(
        "sasl.oauthbearer.assertion.claim.sub",
        STRING,
        None,
        "The subject that the assertion names.",
    ),
    Setting(
        "sasl.oauthbearer.assertion.file",
        STRING,
        None,
        "A file with a finished assertion.",
    ),
    Setting(
        "sasl.oauthbearer.assertion.private.key.file",
        STRING,
        None,
        "A file with the key that signs the assertion.",
    ),
    Setting(
        "sasl.oauthbearer.assertion.private.key.passphrase",
        PASSWORD,
        None,
        "The passphrase of that key.",
    ),
    Setting(
        "sasl.oauthbearer.assertion.template.file",
        STRING,
        None,
        "A file with further claims of the assertion.",
    ),
    Setting(
        "sasl.oauthbearer.client.credentials.client.id",
        STRING,
        None,
        "The id that the broker asks for its own tokens with.",
    ),
    Setting(
        "sasl.oauthbearer.client.credentials.client.secret",
        PASSWORD,
        None,
        "The secret that goes with that id.",
    ),
    Setting(
        "sasl.oauthbearer.clock.skew.seconds",
        INT,
        30,
        "How far the provider's clock may be from the broker's.",
    ),
    Setting(
        "sasl.oauthbearer.expected.audience",
        LIST,
        (),
        "Of whom a token must be meant for one; anybody when empty.",
    ),
    Setting(
        "sasl.oauthbearer.expected.issuer",
        STRING,
        None,
        "Who must have issued a token; anybody when unset.",
    ),
    Setting(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        LONG,
        3_600_000,
        "How often the provider's keys are read again.",
    ),
    Setting(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        LONG,
        10_000,
        "How long a failed reading of keys waits at most.",
    ),
    Setting(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        LONG,
        100,
        "How long a failed reading of keys waits at first.",
    ),
    Setting(
        "sasl.oauthbearer.jwks.endpoint.url",
        STRING,
        None,
        "Where the provider's keys are.",
    ),
    Setting(
        "sasl.oauthbearer.jwt.retriever.class",
        CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        "How the broker gets its own tokens.",
    ),
    Setting(
        "sasl.oauthbearer.jwt.validator.class",
        CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        "How a token is checked.",
    ),
    Setting(
        "sasl.oauthbearer.scope",
        STRING,
        None,
        "The scope that the broker asks for its own tokens with.",
    ),
    Setting(
        "sasl.oauthbearer.scope.claim.name",
        STRING,
        "scope",
        "The claim of a token that has its scope.",
    ),
    Setting(
        "sasl.oauthbearer.sub.claim.name",
        STRING,
        "sub",
        "The claim of a token that has its subject.",
    ),
    Setting(
        "sasl.oauthbearer.token.endpoint.url",
        STRING,
        None,
        "Where the provider gives tokens.",
    ),
]
