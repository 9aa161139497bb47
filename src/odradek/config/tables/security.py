"""Settings of security: TLS, SASL, authorization, delegation tokens."""

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
CLUSTER_WIDE: Final = DynamicMode.CLUSTER_WIDE

AUTHORIZER_CLASSES: Final = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
)
"""Kafka's own authorizers: of its brokers without ZooKeeper, and with it. They decide alike."""
_JVM: Final = "Accepted for the sake of existing files; without effect, it concerns the JVM only."

SECURITY_SETTINGS: Final = [
    Setting(
        "authorizer.class.name",
        STRING,
        "",
        "The authorizer; none when empty. Both of Kafka's decide by ACLs.",
        choices=("", *AUTHORIZER_CLASSES),
    ),
    Setting(
        "super.users",
        STRING,
        "",
        "Principals that may do everything: `User:name`, separated by semicolons.",
        pattern=r"(?:[^;:]+:[^;]*(?:;|$))*",
        is_hidden=True,
    ),
    Setting(
        "allow.everyone.if.no.acl.found",
        BOOLEAN,
        False,
        "Whether a resource without ACLs is open to everybody.",
        is_hidden=True,
    ),
    Setting(
        "principal.builder.class",
        CLASS,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        "How a connection's principal is built; only the default exists.",
        dynamic=PER_BROKER,
    ),
    Setting("security.providers", STRING, None, _JVM),
    Setting(
        "ssl.protocol", STRING, "TLSv1.3", "The TLS version that is preferred.", dynamic=PER_BROKER
    ),
    Setting(
        "ssl.enabled.protocols",
        LIST,
        ("TLSv1.2", "TLSv1.3"),
        "The TLS versions that are offered.",
        dynamic=PER_BROKER,
    ),
    Setting(
        "ssl.cipher.suites",
        LIST,
        (),
        "The cipher suites that are offered; the library's own when empty.",
        dynamic=PER_BROKER,
    ),
    Setting(
        "ssl.client.auth",
        STRING,
        "none",
        "Whether clients must show a certificate.",
        choices=("required", "requested", "none"),
        dynamic=PER_BROKER,
    ),
    Setting(
        "ssl.endpoint.identification.algorithm",
        STRING,
        "https",
        "How a server's host name is checked; empty does not check it.",
        dynamic=PER_BROKER,
    ),
    Setting(
        "ssl.principal.mapping.rules",
        STRING,
        "DEFAULT",
        "How a certificate's name becomes a principal.",
    ),
    Setting(
        "ssl.allow.dn.changes", BOOLEAN, False, "Whether a new certificate may have another name."
    ),
    Setting(
        "ssl.allow.san.changes",
        BOOLEAN,
        False,
        "Whether a new certificate may lack alternative names of the old one.",
    ),
    Setting(
        "ssl.keystore.type",
        STRING,
        "JKS",
        "The format of the key store; PEM and PKCS12 are supported.",
        dynamic=PER_BROKER,
    ),
    Setting(
        "ssl.keystore.location", STRING, None, "The file of the key store.", dynamic=PER_BROKER
    ),
    Setting(
        "ssl.keystore.password",
        PASSWORD,
        None,
        "The password of the key store.",
        dynamic=PER_BROKER,
    ),
    Setting(
        "ssl.keystore.key", PASSWORD, None, "The private key itself, as PEM.", dynamic=PER_BROKER
    ),
    Setting(
        "ssl.keystore.certificate.chain",
        PASSWORD,
        None,
        "The certificate chain itself, as PEM.",
        dynamic=PER_BROKER,
    ),
    Setting(
        "ssl.key.password", PASSWORD, None, "The password of the private key.", dynamic=PER_BROKER
    ),
    Setting(
        "ssl.truststore.type",
        STRING,
        "JKS",
        "The format of the trust store; PEM and PKCS12 are supported.",
        dynamic=PER_BROKER,
    ),
    Setting(
        "ssl.truststore.location", STRING, None, "The file of the trust store.", dynamic=PER_BROKER
    ),
    Setting(
        "ssl.truststore.password",
        PASSWORD,
        None,
        "The password of the trust store.",
        dynamic=PER_BROKER,
    ),
    Setting(
        "ssl.truststore.certificates",
        PASSWORD,
        None,
        "The trusted certificates themselves, as PEM.",
        dynamic=PER_BROKER,
    ),
    Setting("ssl.provider", STRING, None, _JVM, dynamic=PER_BROKER),
    Setting("ssl.engine.factory.class", CLASS, None, _JVM, dynamic=PER_BROKER),
    Setting("ssl.keymanager.algorithm", STRING, "SunX509", _JVM, dynamic=PER_BROKER),
    Setting("ssl.trustmanager.algorithm", STRING, "PKIX", _JVM, dynamic=PER_BROKER),
    Setting("ssl.secure.random.implementation", STRING, None, _JVM, dynamic=PER_BROKER),
    Setting(
        "sasl.enabled.mechanisms",
        LIST,
        ("GSSAPI",),
        "The SASL mechanisms that are offered.",
        dynamic=PER_BROKER,
    ),
    Setting(
        "sasl.mechanism.inter.broker.protocol",
        STRING,
        "GSSAPI",
        "The SASL mechanism between brokers.",
        dynamic=PER_BROKER,
    ),
    Setting(
        "sasl.mechanism.controller.protocol",
        STRING,
        "GSSAPI",
        "The SASL mechanism towards the controller.",
    ),
    Setting(
        "sasl.jaas.config", PASSWORD, None, "Credentials in the JAAS notation.", dynamic=PER_BROKER
    ),
    Setting("sasl.server.callback.handler.class", CLASS, None, _JVM),
    Setting("sasl.client.callback.handler.class", CLASS, None, _JVM),
    Setting("sasl.login.callback.handler.class", CLASS, None, _JVM),
    Setting("sasl.login.class", CLASS, None, _JVM),
    Setting(
        "sasl.server.max.receive.size",
        INT,
        524_288,
        "The largest SASL message before authentication.",
    ),
    Setting(
        "sasl.kerberos.service.name",
        STRING,
        None,
        "The Kerberos service name; Kerberos is not available here.",
        dynamic=PER_BROKER,
    ),
    Setting(
        "sasl.kerberos.principal.to.local.rules",
        LIST,
        ("DEFAULT",),
        "How Kerberos names become principals; Kerberos is not available here.",
        dynamic=PER_BROKER,
    ),
    Setting(
        "delegation.token.secret.key",
        PASSWORD,
        None,
        "The secret that delegation tokens are signed with; none are given when unset.",
    ),
    Setting(
        "delegation.token.max.lifetime.ms",
        LONG,
        604_800_000,
        "How long a delegation token can live at most.",
        at_least=1,
    ),
    Setting(
        "delegation.token.expiry.time.ms",
        LONG,
        86_400_000,
        "How long a delegation token lives without being renewed.",
        at_least=1,
    ),
    Setting(
        "delegation.token.expiry.check.interval.ms",
        LONG,
        3_600_000,
        "How often expired delegation tokens are removed.",
        at_least=1,
    ),
]
