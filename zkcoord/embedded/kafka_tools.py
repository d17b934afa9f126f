"""Runs Kafka's own command line tools from the fetched jars, as operators do; for the demo and the tests."""

import subprocess

from zkcoord.embedded.artifacts import KAFKA_4_VERSION, kafka_jars, kafka_tools_jars
from zkcoord.embedded.java import find_java

MAIN = {
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
}
IN_THE_BROKER = {"kafka-storage": "kafka.tools.StorageTool"}
TIMEOUT_S = 120
HEAP = "128m"


def run_tool(name: str, *arguments: str, version: str = KAFKA_4_VERSION) -> subprocess.CompletedProcess[str]:
    """Run the tool of this version, and return its exit code and what it printed."""
    if name in MAIN:
        main, jars = MAIN[name], (*kafka_tools_jars(version), *kafka_jars(version))
    else:
        main, jars = IN_THE_BROKER[name], kafka_jars(version)
    command = find_java().command(main, jars, *arguments, heap=HEAP)
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)


def kafka_tool(name: str, *arguments: str, version: str = KAFKA_4_VERSION) -> str:
    """Run the tool, and return all that it printed."""
    ran = run_tool(name, *arguments, version=version)
    return ran.stdout + ran.stderr


def offsets_shown(said: str, group: str) -> dict[tuple[str, int], int]:
    """Return the offset of each topic and partition from the output of `kafka-consumer-groups --describe`.

    A partition without an offset is left out.

    >>> head = "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID"
    >>> offsets_shown(f"Consumer group 'g' has no active members.\\n\\n{head}\\ng t 0 7 9 2 -\\ng t 1 - 9 - -", "g")
    {('t', 0): 7}
    """
    rows = [row for row in map(str.split, said.splitlines()) if len(row) >= 6 and row[0] == group]
    return {(row[1], int(row[2])): int(row[3]) for row in rows if row[3].isdigit()}
