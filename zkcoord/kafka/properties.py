"""Translates Kafka's client properties files, as the Java tools read them (`--command-config`), for librdkafka.

A key that both know is kept or renamed. A key that only Java knows is refused by name, since ignoring a security
setting silently is worse than an error. Other keys are passed on, and librdkafka refuses those that it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from zkcoord.errors import UsageError

Isolation = Literal["read_committed", "read_uncommitted"]

RENAMED = {  # Java -> librdkafka: the same setting under another name
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "request.timeout.ms": "socket.timeout.ms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
}

REFUSED = {  # only Java -> what to do instead
    "default.api.timeout.ms": "leave it out (zkcoord has time limits of its own)",
    "exclude.internal.topics": "leave it out",
    "interceptor.classes": "leave it out: Java classes cannot run here",
    "key.deserializer": "leave it out: Java classes cannot run here",
    "max.poll.records": "leave it out (poll_many takes the number of messages)",
    "metric.reporters": "leave it out: Java classes cannot run here",
    "sasl.client.callback.handler.class": "leave it out: Java classes cannot run here",
    "sasl.login.callback.handler.class": "leave it out: Java classes cannot run here",
    "sasl.login.class": "leave it out: Java classes cannot run here",
    "security.providers": "leave it out: Java classes cannot run here",
    "ssl.cipher.suites": "leave it out: OpenSSL names its ciphers differently",
    "ssl.enabled.protocols": "leave it out: OpenSSL's own limits hold",
    "ssl.engine.factory.class": "leave it out: Java classes cannot run here",
    "ssl.keymanager.algorithm": "leave it out",
    "ssl.protocol": "leave it out: OpenSSL's own limits hold",
    "ssl.provider": "leave it out: Java classes cannot run here",
    "ssl.secure.random.implementation": "leave it out",
    "ssl.trustmanager.algorithm": "leave it out",
    "ssl.truststore.password": "leave it out: a PEM file with certificates has no password",
    "value.deserializer": "leave it out: Java classes cannot run here",
}

CONSUMER_ONLY = (
    "allow.auto.create.topics",
    "auto.offset.reset",
    "check.crcs",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.partition.eof",
    "fetch.",
    "group.",
    "heartbeat.interval.ms",
    "isolation.level",
    "max.partition.fetch.bytes",
    "max.poll.interval.ms",
    "partition.assignment.strategy",
    "queued.",
    "session.timeout.ms",
)

PASSWORD_MODULES = ("PlainLoginModule", "ScramLoginModule")
ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SETTING = re.compile(r"((?:\\.|[^\\=: \t\f])*)(?:[ \t\f]*[=:][ \t\f]*|[ \t\f]+)(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_JAAS_OPTION = re.compile(r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""")


def load_command_config(path: str | Path) -> dict[str, str]:
    """Read a Kafka client properties file and return librdkafka's settings.

    Raises UsageError for a file that cannot be read, a line that is no setting, and a setting that only Java has. The
    error names the file and the key, but never a value.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = (isinstance(error, OSError) and error.strerror) or error
        raise UsageError(
            f"cannot read the Kafka client properties {path}: {why}; name a file that can be read"
        ) from error
    try:
        return translate(parse_properties(text))
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def settings_for_asking(config: Mapping[str, str]) -> dict[str, Any]:
    """Return these settings without those for reading records: librdkafka warns about these in a client that only
    asks."""
    return {key: value for key, value in config.items() if not key.startswith(CONSUMER_ONLY)}


def parse_properties(text: str) -> dict[str, str]:
    r"""Key and value of each setting in Java's properties format. The last of repeated keys counts, as in Java.

    >>> parse_properties("# who\na.b = c d\\\n   e\nk:v\nu=\\u0041")
    {'a.b': 'c de', 'k': 'v', 'u': 'A'}
    """
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        setting = _SETTING.fullmatch(line)
        if setting is None:
            raise UsageError(f"line {number} sets nothing; write key=value")
        found[_unescape(setting[1])] = _unescape(setting[2])
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Number (of its last part) and text of each line, without comments and blank lines.

    A backslash at the end of a line joins the next line, without the next line's indent.
    """
    joined = ""
    for number, raw in enumerate(re.split(r"\r\n|\n|\r", text), start=1):
        line = raw.lstrip(" \t\f")
        if not joined and (not line or line[0] in "#!"):
            continue
        joined += line
        if (len(joined) - len(joined.rstrip("\\"))) % 2:
            joined = joined[:-1]
            continue
        yield number, joined
        joined = ""
    if joined:
        yield number, joined


def _unescape(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        escaped = match.group(1)
        return chr(int(escaped[1:], 16)) if len(escaped) == 5 else ESCAPES.get(escaped, escaped)

    return _ESCAPE.sub(one, text)


def translate(java: Mapping[str, str]) -> dict[str, str]:
    """Return the same settings for librdkafka. Raises UsageError that names the first key (alphabetically) without a
    translation."""
    special: dict[str, Callable[[Mapping[str, str]], dict[str, str]]] = {
        "sasl.jaas.config": _jaas,
        "ssl.truststore.location": _truststore,
        "ssl.truststore.type": _nothing,
        "ssl.keystore.location": _keystore,
        "ssl.keystore.type": _nothing,
    }
    found: dict[str, str] = {}
    for key in sorted(java):
        if key in REFUSED:
            raise UsageError(f"{key} is a setting of the Java client only; {REFUSED[key]}")
        if key in special:
            found.update(special[key](java))
        elif key == "security.protocol":
            found[key] = java[key].strip().lower()
        elif key == "ssl.endpoint.identification.algorithm":
            found[key] = java[key].strip().lower() or "none"
        else:
            found[RENAMED.get(key, key)] = java[key].strip()
    return found


def _nothing(java: Mapping[str, str]) -> dict[str, str]:
    return {}  # it is read together with the store's location


def _jaas(java: Mapping[str, str]) -> dict[str, str]:
    """Return user and password from a login module that has them (PLAIN, SCRAM)."""
    module, _, options = java["sasl.jaas.config"].strip().partition(" ")
    name = module.rpartition(".")[2]
    if name not in PASSWORD_MODULES:
        known = " and ".join(PASSWORD_MODULES)
        raise UsageError(f"sasl.jaas.config with {name or 'no module'} cannot be used here, only {known}")
    values = {key: _unescape(double or single) or bare for key, double, single, bare in _JAAS_OPTION.findall(options)}
    if not values.get("username") or "password" not in values:
        raise UsageError(f"sasl.jaas.config names no username and password for {name}")
    return {"sasl.username": values["username"], "sasl.password": values["password"]}


def _truststore(java: Mapping[str, str]) -> dict[str, str]:
    location = java["ssl.truststore.location"].strip()
    kind = java.get("ssl.truststore.type", "").strip().upper()
    if kind != "PEM" and (kind or not location.endswith((".pem", ".crt", ".cer"))):
        raise UsageError(
            f"ssl.truststore.location is a {kind or 'JKS'} store; export its certificates as PEM "
            "(keytool -list -rfc -keystore STORE > ca.pem) and set ssl.truststore.type=PEM"
        )
    return {"ssl.ca.location": location}


def _keystore(java: Mapping[str, str]) -> dict[str, str]:
    location = java["ssl.keystore.location"].strip()
    kind = java.get("ssl.keystore.type", "").strip().upper()
    if kind == "PKCS12" or (not kind and location.endswith((".p12", ".pfx"))):
        return {"ssl.keystore.location": location}
    if kind == "PEM" or (not kind and location.endswith(".pem")):
        return {"ssl.certificate.location": location, "ssl.key.location": location}
    raise UsageError(
        f"ssl.keystore.location is a {kind or 'JKS'} store; convert it (keytool -importkeystore -srckeystore STORE "
        "-destkeystore client.p12 -deststoretype PKCS12) and set ssl.keystore.type=PKCS12"
    )


def isolation_of(value: str) -> Isolation:
    """Return the setting `isolation.level`. Raises UsageError for any other value."""
    if value == "read_committed":
        return "read_committed"
    if value == "read_uncommitted":
        return "read_uncommitted"
    raise UsageError(f"isolation.level is {value!r}; it must be read_committed or read_uncommitted")
