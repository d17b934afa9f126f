"""A Java client's properties file means the same here, or is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from zkcoord.errors import UsageError
from zkcoord.kafka.client import KafkaClient, load_command_config
from zkcoord.kafka.properties import parse_properties

JAAS = 'org.apache.kafka.common.security.{} required username="alice" password="se\\\\"c;ret=1" ;'


def load(tmp_path: Path, text: str) -> dict[str, str]:
    """The settings of a file with this text."""
    path = tmp_path / "client.properties"
    path.write_text(text, encoding="utf-8")
    return load_command_config(path)


def test_the_format_is_javas() -> None:
    text = (
        "# a\n ! b\n\n a.b = c d \nk:v\nw x y\nlong=one,\\\n    two\\\\\n"
        "u=\\u00e9\\t.\nwin=C:\\\\x\r\nempty=\nodd\\ key=1\nk=last"
    )
    assert parse_properties(text) == {
        "a.b": "c d ",
        "k": "last",
        "w": "x y",
        "long": "one,two\\",
        "u": "é\t.",
        "win": "C:\\x",
        "empty": "",
        "odd key": "1",
    }


@pytest.mark.parametrize("module", ["plain.PlainLoginModule", "scram.ScramLoginModule"])
def test_a_secured_client(tmp_path: Path, module: str) -> None:
    text = f"""
        bootstrap.servers=broker:9093
        security.protocol=SASL_SSL
        sasl.mechanism=SCRAM-SHA-512
        sasl.jaas.config={JAAS.format(module)}
        ssl.truststore.type=PEM
        ssl.truststore.location=/etc/ca.pem
        ssl.endpoint.identification.algorithm=
        request.timeout.ms=5000
        client.id=ops
    """
    config = load(tmp_path, text)
    assert config == {
        "bootstrap.servers": "broker:9093",
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": 'se"c;ret=1',
        "ssl.ca.location": "/etc/ca.pem",
        "ssl.endpoint.identification.algorithm": "none",
        "socket.timeout.ms": "5000",
        "client.id": "ops",
    }


@pytest.mark.parametrize(
    ("text", "config"),
    [
        ("ssl.truststore.location=/ca.crt", {"ssl.ca.location": "/ca.crt"}),
        ("ssl.keystore.location=/me.p12\nssl.keystore.password=x", {"ssl.keystore.location": "/me.p12"}),
        ("ssl.keystore.type=PKCS12\nssl.keystore.location=/me", {"ssl.keystore.location": "/me"}),
        ("ssl.keystore.location=/me.pem", {"ssl.certificate.location": "/me.pem", "ssl.key.location": "/me.pem"}),
        ("ssl.ca.location=/native.pem", {"ssl.ca.location": "/native.pem"}),
        ("fetch.max.wait.ms=50", {"fetch.wait.max.ms": "50"}),
    ],
)
def test_equal_settings_are_translated(tmp_path: Path, text: str, config: dict[str, str]) -> None:
    assert load(tmp_path, text).items() >= config.items()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("ssl.truststore.location=/trust.jks\nssl.truststore.password=hush", "ssl.truststore"),
        ("ssl.truststore.location=/trust.jks", "ssl.truststore.location"),
        ("ssl.keystore.location=/key.jks", "ssl.keystore.location"),
        ("sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required;", "Krb5LoginModule"),
        ("sasl.jaas.config=x.PlainLoginModule required user=hush;", "username"),
        ("sasl.login.callback.handler.class=com.acme.Vault", "sasl.login.callback.handler.class"),
        ("ssl.enabled.protocols=TLSv1.2", "ssl.enabled.protocols"),
        ("max.poll.records=1", "max.poll.records"),
        ("a=b\nhush", "line 2"),
    ],
)
def test_settings_of_java_alone_are_refused_without_their_values(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(UsageError, match=named) as refused:
        load(tmp_path, text)
    assert "client.properties" in str(refused.value)
    assert "hush" not in str(refused.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent\.properties: No such file or directory; name a file"):
        load_command_config(tmp_path / "absent.properties")


def test_librdkafka_takes_what_comes_out(tmp_path: Path) -> None:
    text = f"""
        security.protocol=SASL_PLAINTEXT
        sasl.mechanism=SCRAM-SHA-256
        sasl.jaas.config={JAAS.format("scram.ScramLoginModule")}
        ssl.endpoint.identification.algorithm=
        fetch.max.wait.ms=50
        receive.buffer.bytes=65536
        reconnect.backoff.max.ms=1000
    """
    KafkaClient("127.0.0.1:1", load(tmp_path, text)).close()
