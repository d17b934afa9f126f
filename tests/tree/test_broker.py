"""Brokers: where to connect, from every version of their registration."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tree.cases import HOSTILE, QUICK, damaged, reads_or_refuses
from zkcoord.errors import CorruptError
from zkcoord.tree.broker import Broker, decode_broker

V1 = b'{"version":1,"host":"h","port":9092,"jmx_port":9999,"timestamp":"1416335000123"}'
V2 = b'{"version":2,"host":"h","port":9092,"jmx_port":-1,"endpoints":["SSL://h:9093","PLAINTEXT://h:9092"]}'
V3 = b'{"version":3,"host":"h","port":9092,"endpoints":["PLAINTEXT://h:9092"],"rack":"dc1"}'
V4 = (
    b'{"version":4,"host":null,"port":-1,"endpoints":["CLIENT://h:9093","INNER://[::1]:9092"],'
    b'"listener_security_protocol_map":{"CLIENT":"SSL","INNER":"PLAINTEXT"}}'
)
V5 = (
    b'{"version":5,"host":null,"port":-1,"endpoints":["SSL://h_1:9093","SASL_SSL://h_1:9094"],'
    b'"listener_security_protocol_map":{"SSL":"SSL","SASL_SSL":"SASL_SSL"},'
    b'"features":{"f":{"min_version":1,"max_version":3}}}'
)


@pytest.mark.parametrize(
    ("data", "servers"),
    [
        (V1, ["h:9092"]),
        (V2, ["h:9092"]),
        (V3, ["h:9092"]),
        (V4, ["[::1]:9092"]),
        (V5, ["h_1:9093"]),
        (b'{"version":1,"host":null,"port":-1}', []),
        (b'{"version":2,"host":null,"port":-1,"endpoints":["PLAINTEXT://:9092"]}', []),
    ],
)
def test_a_broker_of_every_version_is_read(data: bytes, servers: list[str]) -> None:
    assert decode_broker(data) == Broker(servers, "dc1" if data is V3 else None)


def test_a_rack_is_a_text_or_none() -> None:
    plain = {"version": 5, "host": "h", "port": 9092}
    assert decode_broker(json.dumps({**plain, "rack": "r"}).encode()).rack == "r"
    assert decode_broker(json.dumps({**plain, "rack": None}).encode()).rack is None
    with pytest.raises(CorruptError, match="rack is 7"):
        decode_broker(json.dumps({**plain, "rack": 7}).encode())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"h-1416335000123:h:9092", "bad broker 'h-1416335000123:h:9092': a Kafka 0.7 broker, which no later"),
        (b"{}", "port is missing"),
        (b'{"host":7,"port":9092}', "host is 7, allowed is a text"),
        (b'{"host":"h","port":70000}', "port is 70000, allowed is an integer from -1 to 65535"),
        (b'{"endpoints":["h:9092"]}', "endpoints is 'h:9092', allowed is <listener>://<host>:<port>"),
        (b'{"endpoints":"h"}', "endpoints is 'h', allowed is a list of texts"),
    ],
)
def test_another_text_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(CorruptError) as caught:
        decode_broker(data)
    assert message in str(caught.value)


@pytest.mark.parametrize("data", HOSTILE)
def test_hostile_bytes_are_refused(data: bytes) -> None:
    assert reads_or_refuses(decode_broker, data) is not None


@QUICK
@given(st.binary(max_size=60) | st.sampled_from([V1, V2, V3, V4, V5]).flatmap(damaged))
def test_random_and_damaged_bytes_never_raise_anything_else(data: bytes) -> None:
    reads_or_refuses(decode_broker, data)
