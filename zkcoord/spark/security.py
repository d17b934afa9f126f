"""Translates Kafka's security settings between the names of Java (Spark's connector) and librdkafka. Pure.

A user gives each setting once, with either name. A setting without a counterpart is refused with advice, never dropped.
"""

from __future__ import annotations

from collections.abc import Mapping

from zkcoord.errors import UsageError
from zkcoord.kafka.properties import REFUSED, translate

PREFIXES = ("security.", "sasl.", "ssl.", "enable.ssl.")
NATIVE_ONLY = {  # librdkafka's names
    *("sasl.mechanisms", "sasl.username", "sasl.password", "sasl.kerberos.keytab", "sasl.kerberos.principal"),
    *("ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location"),
    *("ssl.key.pem", "enable.ssl.certificate.verification"),
}
STANDS_FOR = (  # Java's settings that are not translated if the user gave librdkafka's
    ("sasl.jaas.config", ("sasl.username", "sasl.password", "sasl.kerberos.", "sasl.oauthbearer.")),
    ("ssl.truststore.", ("ssl.ca.",)),
    ("ssl.keystore.", ("ssl.certificate.", "ssl.key.", "ssl.keystore.")),
)
LOGIN = "org.apache.kafka.common.security"


def is_security(key: str) -> bool:
    """True for a setting that is translated here."""
    return key.startswith(PREFIXES)


def to_native(java: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Translate Java's names to librdkafka's. Settings in `given` (librdkafka's) are left out.

    >>> to_native({"sasl.jaas.config": 'org.PlainLoginModule required username="u" password="p";'}, {})
    {'sasl.username': 'u', 'sasl.password': 'p'}
    """
    left = {key: value for key, value in java.items() if is_security(key) and key not in given}
    for prefix, instead in STANDS_FOR:
        if any(key.startswith(instead) for key in given):
            left = {key: value for key, value in left.items() if not key.startswith(prefix)}
    return {key: value for key, value in translate(left).items() if key not in given}


def only_java(key: str) -> bool:
    """True for a setting that only Java's client has."""
    return key in REFUSED


def to_java(native: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Translate librdkafka's names to Java's. Settings in `given` (Java's) are left out. Raises UsageError for a
    setting without a counterpart.

    >>> to_java({"ssl.ca.location": "/ca.pem", "sasl.mechanisms": "PLAIN"}, {})
    {'sasl.mechanism': 'PLAIN', 'ssl.truststore.location': '/ca.pem', 'ssl.truststore.type': 'PEM'}
    """
    found: dict[str, str] = {}
    for key, value in sorted(native.items()):
        if key in ("sasl.mechanism", "sasl.mechanisms"):
            found["sasl.mechanism"] = value
        elif key == "sasl.username":
            found["sasl.jaas.config"] = _jaas(native, given)
        elif key == "ssl.ca.location":
            found |= {"ssl.truststore.location": value, "ssl.truststore.type": "PEM"}
        elif key == "ssl.ca.pem":
            found |= {"ssl.truststore.certificates": value, "ssl.truststore.type": "PEM"}
        elif key in ("ssl.certificate.pem", "ssl.key.pem"):
            name = "ssl.keystore.certificate.chain" if key == "ssl.certificate.pem" else "ssl.keystore.key"
            found |= {name: value, "ssl.keystore.type": "PEM"}
        elif key in ("ssl.certificate.location", "ssl.key.location"):
            if native.get("ssl.certificate.location") != native.get("ssl.key.location") and not _keystore(given):
                raise UsageError(
                    "Spark's connector takes key and certificate from one PEM file: put both into one and name it in "
                    "ssl.certificate.location and ssl.key.location, or set kafka.ssl.keystore.location"
                )
            found |= {"ssl.keystore.location": value, "ssl.keystore.type": "PEM"}
        elif key == "ssl.endpoint.identification.algorithm" and value.strip().lower() == "none":
            found[key] = ""
        elif key not in NATIVE_ONLY:
            found[key] = value
    if _keystore(given):
        found = {key: value for key, value in found.items() if not key.startswith("ssl.keystore.")}
    if any(key.startswith("ssl.truststore.") for key in given):
        found = {key: value for key, value in found.items() if not key.startswith("ssl.truststore.")}
    return {key: value for key, value in found.items() if key not in given}


def _keystore(given: Mapping[str, str]) -> bool:
    return any(key.startswith("ssl.keystore.") for key in given)


def _jaas(native: Mapping[str, str], given: Mapping[str, str]) -> str:
    mechanism = native.get("sasl.mechanism") or native.get("sasl.mechanisms") or given.get("sasl.mechanism", "")
    module = "scram.ScramLoginModule" if mechanism.upper().startswith("SCRAM") else "plain.PlainLoginModule"
    user, password = (_quoted(native.get(key, "")) for key in ("sasl.username", "sasl.password"))
    return f"{LOGIN}.{module} required username={user} password={password};"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
