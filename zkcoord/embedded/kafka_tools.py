"""Kafka's own command line tools, run from the fetched jars: what an operator would type, for the tests."""

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
SMALL = ("-XX:TieredStopAtLevel=1",)


def run_tool(name: str, *arguments: str, version: str = KAFKA_4_VERSION) -> subprocess.CompletedProcess[str]:
    """Run the tool of this version, and return its exit code and what it printed."""
    if name in MAIN:
        main, jars = MAIN[name], (*kafka_tools_jars(version), *kafka_jars(version))
    else:
        main, jars = IN_THE_BROKER[name], kafka_jars(version)
    command = find_java().command(main, jars, *arguments, heap=HEAP, options=SMALL)
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)


def kafka_tool(name: str, *arguments: str, version: str = KAFKA_4_VERSION) -> str:
    """Run the tool, and return all that it printed."""
    ran = run_tool(name, *arguments, version=version)
    return ran.stdout + ran.stderr
