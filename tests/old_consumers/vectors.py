"""Random groups of old members, and what a version's own assignors compute for them (java/Assignors.java).

    python -m tests.old_consumers.vectors 0.8.2.2 --seed 7 --cases 100

prints the cases in the form of tests/data/legacy_vectors.json (without `specs`: no member was started).
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.old_consumers.lab import V08, V11
from zkcoord.core.assignors.legacy.java_order import java_hash
from zkcoord.embedded.java_program import java_command
from zkcoord.embedded.old_consumer import old_jars

ANSWER_S = 900
TOPICS = ("t", "clicks", "views", "foo.bar", "fooxbar", "orders-eu", "a_b", "Q", "t1", "t10", "t2")
TIED = ("Aa", "BB", "AaAa", "BBBB", "AaBB", "BBAa")  # Java's hashes of names of one length here are equal
INTERNAL = ("__consumer_offsets", "__transaction_state")
REGEXES = (".*", "t.*", "t[0-9]+", "(clicks|views)", "foo.bar", "A.*|B.*", "clicks|t1", "nothing", r"foo\.bar", r"\w+")
NAMES = ("a", "b", "c", "host7-1416335000123-1a2b3c4d", "host7-1416335000124-9f0", "é", "z-0", "Z", "a-1", "a_1", "10")
Case = dict[str, Any]


def random_case(draw: random.Random, version: str, name: str) -> Case:
    """A group that could stand in a tree, sometimes with one registration at which members fail."""
    topics = _topics(draw)
    strategy = draw.choice(("range", "roundrobin"))
    # in the order of their names: where hashes of partitions *and* of members tie, it counts who registered first
    names = sorted(draw.sample(NAMES, draw.choice((1, 2, 2, 3, 4, 5, 8))))
    one_for_all = strategy == "roundrobin" and version == V08 and draw.random() < 0.7  # else it refuses nearly always
    if one_for_all:
        subscription = _subscription(draw, topics)
        texts = [_static(draw, subscription) for _ in names]
    else:
        texts = [_registration(draw, topics, version) for _ in names]
    if draw.random() < 0.08:
        texts[0] = draw.choice(BROKEN)
    return {
        "name": name,
        "version": version,
        "strategy": strategy,
        "group": "g",
        "exclude_internal": draw.random() < 0.8,
        "registrations": dict(zip((f"g_{each}" for each in names), texts, strict=True)),
        "topics": topics,
    }


def _topics(draw: random.Random) -> dict[str, int | list[int]]:
    pool = [*TOPICS, *INTERNAL] if draw.random() < 0.6 else [*TIED, "t", "Q"]
    found: dict[str, int | list[int]] = {}
    for topic in draw.sample(pool, draw.randint(1, min(8, len(pool)))):
        gaps = draw.random() < 0.1
        found[topic] = sorted(draw.sample(range(20), draw.randint(1, 6))) if gaps else draw.choice((0, 1, 2, 3, 5, 12))
    return found


def _subscription(draw: random.Random, topics: dict[str, int | list[int]]) -> dict[str, int]:
    pool = [*topics, "absent"]
    return {topic: draw.choice((1, 1, 2, 3, 11)) for topic in draw.sample(pool, draw.randint(1, len(pool)))}


def _static(draw: random.Random, subscription: dict[str, int]) -> str:
    rows = list(subscription.items())
    draw.shuffle(rows)
    document: Case = {"version": 1, "subscription": dict(rows), "pattern": "static", "timestamp": "1416335000123"}
    if draw.random() < 0.2:
        document["coordination"] = "zkcoord/1"
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def _registration(draw: random.Random, topics: dict[str, int | list[int]], version: str) -> str:
    kind = draw.random()
    if kind < 0.05:  # a poke
        return _static(draw, {})
    if kind < 0.7:
        return _static(draw, _subscription(draw, topics))
    regex = draw.choice(REGEXES)
    written = json.dumps(regex)
    if version == V11:  # it escapes twice
        written = json.dumps(written[1:-1])
    pattern = draw.choice(("white_list", "white_list", "black_list"))
    return f'{{"version":1,"subscription":{{{written}:{draw.choice((1, 1, 2, 3))}}},"pattern":"{pattern}"}}'


def _entry(count: str) -> str:
    return f'{{"version":1,"subscription":{{"t":{count}}},"pattern":"static"}}'


BROKEN = (
    "",
    "{}",
    "t",
    '{ "t": 2 }',
    _entry("0"),
    _entry("-1"),
    _entry('"1"'),
    _entry("1.5"),
    _entry("01"),
    _entry("1") + " more",
    '{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":1416335000123}',
    '{"version":1,"subscription":{"t":1}}',
    '{"version":1,"pattern":"static"}',
    '{"version":1,"subscription":{"t(":1},"pattern":"white_list"}',
    r'{"version":1,"subscription":{"foo\.bar":1},"pattern":"white_list"}',
    '{"version":1,"subscription":{"t":1},"pattern":"other"}',
)


def answered(version: str, cases: Sequence[Case]) -> list[Case]:
    """The cases with what that version's own classes say: `owners`, or `error`."""
    lines: list[str] = []
    for case in cases:
        lines.append(f"case\t{case['strategy']}\t{case['group']}\t{str(case['exclude_internal']).lower()}")
        lines += [f"member\t{name}\t{_base64(text)}" for name, text in case["registrations"].items()]
        lines += [f"topic\t{name}\t{_base64(_topic_node(size))}" for name, size in case["topics"].items()]
        lines.append("end")
    command = java_command(Path(__file__).parent / "java" / "Assignors.java", old_jars(version), (), heap="128m")
    text = "".join(f"{line}\n" for line in lines)
    ran = subprocess.run(command, input=text, capture_output=True, encoding="utf-8", timeout=ANSWER_S)
    answers = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith('{"')]
    assert len(answers) == len(cases), ran.stderr[-2000:]
    return [{**case, **answer, "hash_tie": _has_tie(case)} for case, answer in zip(cases, answers, strict=True)]


def random_vectors(version: str, seed: int, count: int) -> list[Case]:
    """`count` random cases of a version with their answers; a seed is the same cases always."""
    draw = random.Random(f"{version} {seed}")
    return answered(version, [random_case(draw, version, f"random {seed}.{n}") for n in range(count)])


def _topic_node(size: int | list[int]) -> str:
    ids = range(size) if isinstance(size, int) else size
    return json.dumps({"version": 1, "partitions": {str(number): [0] for number in ids}})


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _has_tie(case: Case) -> bool:
    """Whether two partitions of different topics have equal hashes, as this version names them."""
    shape = "{}-{}" if case["version"] == V11 else "[{},{}]"
    sizes = case["topics"].items()
    ids = [(t, n) for t, size in sizes for n in (range(size) if isinstance(size, int) else size)]
    return len({java_hash(shape.format(*one)) for one in ids}) < len(ids)


def main() -> None:
    """Print cases for a person, or for a file."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("version")
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--cases", type=int, default=100)
    given = words.parse_args()
    print(json.dumps(random_vectors(given.version, given.seed, given.cases), indent=1))


if __name__ == "__main__":
    main()
