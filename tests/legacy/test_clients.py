"""The data of nodes in an old deployment: it is recognised as far as its bytes tell, and no data breaks a reader."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.legacy.groups import static, takes
from tests.tree.cases import HOSTILE, QUICK, damaged, reads_or_refuses
from zkcoord.errors import CorruptError
from zkcoord.legacy.clients import Library, client_of
from zkcoord.legacy.reading import read_as
from zkcoord.legacy.versions import old_version
from zkcoord.tree.broker import decode_broker
from zkcoord.tree.offset import decode_offset
from zkcoord.tree.ownership import owner_of
from zkcoord.tree.registration import MARKER, decode_registration
from zkcoord.tree.topic import decode_replicas, topic_of

DATA = Path(__file__).parents[1] / "data"
NODES: list[dict[str, Any]] = json.loads((DATA / "old_nodes.json").read_text())
VECTORS: list[dict[str, Any]] = json.loads((DATA / "legacy_vectors.json").read_text())
STARTED = {
    (v["version"], v["group"], consumer, v["registrations"][consumer]) for v in VECTORS for consumer in v["specs"]
}
READERS: list[Callable[[bytes], object]] = [
    decode_registration,
    decode_broker,
    decode_offset,
    lambda data: topic_of("t", data),
    decode_replicas,
    lambda data: owner_of(data, 0),
    lambda data: client_of("g", "g_h-1-1a", data),
    lambda data: read_as(old_version("0.8.2"), data.decode("utf-8", "replace")),
    lambda data: read_as(old_version("1.0.0"), data.decode("utf-8", "replace")),
    lambda data: read_as(old_version("1.1.1"), data.decode("utf-8", "replace")),
]


def data_of(node: dict[str, Any]) -> bytes:
    """The node's bytes."""
    return bytes.fromhex(node["hex"]) if "hex" in node else node["text"].encode()


@pytest.mark.parametrize("node", NODES, ids=lambda node: node["about"])
def test_a_client_is_recognised_as_far_as_its_bytes_tell(node: dict[str, Any]) -> None:
    found = client_of("g", node["id"], data_of(node), node.get("times_set", 0))
    assert (found.library, found.versions) == (Library(node["library"]), node["versions"])


def test_every_library_is_among_the_examples() -> None:
    assert {node["library"] for node in NODES} == {library.value for library in Library}


def test_real_members_are_not_taken_for_another_library_or_version() -> None:
    lines = {"0.8.2.2": (0, 8, 2), "0.11.0.2": (0, 11, 0), "1.1.1": (1, 1, 1)}
    wrong = []
    for version, group, consumer, text in STARTED:
        found = client_of(group, consumer, text.encode())
        first, last = (found.versions or "9-0").split("-")
        if found.library is not Library.KAFKA or not numbers(first) <= lines[version] <= numbers(last):
            wrong.append((version, consumer, text, found))
    assert (len(STARTED) > 100, wrong) == (True, [])


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


@pytest.mark.parametrize("node", NODES, ids=lambda node: node["about"])
def test_no_reader_breaks_at_an_example(node: dict[str, Any]) -> None:
    for read in READERS:
        reads_or_refuses(read, data_of(node))


@QUICK
@given(st.data())
def test_no_reader_breaks_at_damaged_bytes(data: st.DataObject) -> None:
    documents = [data_of(node) for node in NODES if node.get("text", "").startswith('{"')]
    objects = [document for document in documents if len(document) < 1000 and is_object(document)]
    damage = data.draw(st.binary(max_size=40) | st.sampled_from(HOSTILE) | st.sampled_from(objects).flatmap(damaged))
    for read in READERS:
        reads_or_refuses(read, damage)


def is_object(document: bytes) -> bool:
    try:
        return bool(json.loads(document))
    except ValueError:
        return False


def test_a_broker_of_0_7_is_named_as_such() -> None:
    with pytest.raises(CorruptError, match=r"a Kafka 0\.7 broker, which no later client reads"):
        decode_broker(b"h7-1416335000123:h7:9092")


OLD_TEXTS = sorted({text for vector in VECTORS for text in vector["registrations"].values()})
WILD = [
    '"pattern":null',
    '"pattern":"white_list"',
    '"x":1e3',
    "\t",
    "\\",
    "0",
    '"b":"x",',
    '{"t":2,"u":true}',
    "\x00",
    "{1,2}",
]


@st.composite
def changed_texts(draw: st.DrawFn) -> str:
    """A text that a member wrote, with a part of it replaced."""
    text = draw(st.sampled_from(OLD_TEXTS))
    start = draw(st.integers(0, len(text)))
    return text[:start] + draw(st.sampled_from(WILD)) + text[draw(st.integers(start, min(len(text), start + 25))) :]


OTHER_PROTOCOL = (
    '{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"1416335000123","coordination":"zkcoord/\t1"}'
)


@settings(max_examples=400, deadline=None)
@given(changed_texts(), st.sampled_from(["0.8.2", "0.11", "1.0.0", "1.1.1"]))
@example(OTHER_PROTOCOL, "0.8.2")
def test_registrations_that_some_version_reads_are_read(text: str, version: str) -> None:
    try:
        read = read_as(old_version(version), text)
        threads = read.threads(takes("t", "a", "foo.bar"))
    except CorruptError:
        return
    of_ours = re.search(f'"coordination":"{MARKER[:-1]}(?!1")', text)  # with another protocol: not for this release
    if threads and not of_ours:
        decode_registration(text.encode())


def test_a_name_that_only_begins_like_the_group_is_of_nobody_that_is_known() -> None:
    assert client_of("g", "gx_h-1416335000123-1a2b3c4d", static(t=1).encode()).library is Library.UNKNOWN
