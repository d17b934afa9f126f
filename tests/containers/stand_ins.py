"""Images in the place of others' that deploy/compose.yaml names: the same paths and volumes, without a registry.

ZooKeeper is the one of the other tests here. Kafka is the jars that `zkcoord.embedded` fetches, below scripts with the
names of Kafka's own. Prometheus is Debian's program. There is none for Grafana.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import docker

from tests.containers.image import Say, base_image, digest, present, zookeeper_image
from tests.metrics.prometheus import program
from zkcoord.embedded.artifacts import KAFKA_VERSION, kafka_jars, kafka_tools_jars
from zkcoord.embedded.kafka import LOG4J, MAIN
from zkcoord.embedded.kafka_tools import MAIN as TOOLS

SCRIPTS = {
    "kafka-server-start.sh": MAIN,
    "kafka-topics.sh": TOOLS["kafka-topics"],
    "kafka-producer-perf-test.sh": "org.apache.kafka.tools.ProducerPerformance",
}
SCRIPT = """#!/bin/sh
exec java -Xmx384m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData \\
    -Dlog4j.configuration=file:/opt/kafka/config/log4j.properties \\
    -cp '/opt/kafka/libs/*' {main} "$@"
"""
BROKER = """\
broker.id=0
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""
"""As the file of that name in Kafka's own image, as far as the compose file does not override it."""
ZOO_CFG = """\
dataDir=/data
dataLogDir=/datalog
tickTime=2000
clientPort=2181
maxClientCnxns=60
admin.enableServer=false
"""
"""As the entry point of ZooKeeper's own image writes it."""
PROMETHEUS = ("prometheus", "--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus")


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """One image. `files` stand at these absolute paths; `folders` are its volumes, and nobody's, as whom it runs."""

    base: str
    files: Mapping[str, bytes]
    folders: Sequence[str]
    entry_point: Sequence[str] = ()  # that of the base

    @property
    def dockerfile(self) -> str:
        folders = " ".join(self.folders)
        lines = [f"FROM {self.base}", "USER root", "COPY files/ /", f"RUN mkdir -p {folders} && chown nobody {folders}"]
        lines += [f"ENTRYPOINT {json.dumps(list(self.entry_point))}"] * bool(self.entry_point)
        return "\n".join([*lines, "USER nobody", ""])

    def made(self, client: docker.DockerClient, name: str, say: Say) -> str:
        """Build it if the engine lacks it; returns its name with a tag that is a hash of all that goes in."""
        parts = [part for path, data in sorted(self.files.items()) for part in (path, data)]
        tagged = f"zkcoord-test-{name}:{digest([self.dockerfile, *parts])}"
        if not present(client, tagged):
            say(f"image {tagged}: {len(self.files)} files on {self.base}")
            client.images.build(fileobj=self._context(), custom_context=True, tag=tagged, rm=True, forcerm=True)
        return tagged

    def _context(self) -> io.BytesIO:
        context = io.BytesIO()
        with tarfile.open(fileobj=context, mode="w") as tar:
            for path, data in [
                ("Dockerfile", self.dockerfile.encode()),
                *(("files" + p, d) for p, d in self.files.items()),
            ]:
                entry = tarfile.TarInfo(path)
                entry.size, entry.mode = len(data), 0o755
                tar.addfile(entry, io.BytesIO(data))
        context.seek(0)
        return context


def stand_ins(client: docker.DockerClient, say: Say) -> dict[str, str]:
    """Return the settings of the compose file that name the images, which are made if the engine lacks them."""
    base = base_image(client, say)
    images = {
        "zookeeper": StandIn(
            base=zookeeper_image(say), files={"/conf/zoo.cfg": ZOO_CFG.encode()}, folders=["/data", "/datalog"]
        ),
        "kafka": StandIn(base=base, files=dict(_of_kafka()), folders=["/var/lib/kafka/data"]),
        "prometheus": StandIn(
            base=base,
            files={"/usr/bin/prometheus": Path(program("prometheus")).read_bytes()},
            folders=["/prometheus"],
            entry_point=PROMETHEUS,
        ),
    }
    return {f"{name.upper()}_IMAGE": image.made(client, f"compose-{name}", say) for name, image in images.items()}


def _of_kafka() -> Iterator[tuple[str, bytes]]:
    """The files below /opt/kafka."""
    for name, main in SCRIPTS.items():
        yield f"/opt/kafka/bin/{name}", SCRIPT.format(main=main).encode()
    for jar in (*kafka_jars(), *kafka_tools_jars(KAFKA_VERSION)):
        yield f"/opt/kafka/libs/{jar.name}", jar.read_bytes()
    yield "/opt/kafka/config/server.properties", BROKER.encode()
    yield "/opt/kafka/config/log4j.properties", LOG4J.encode()
