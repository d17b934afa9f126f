"""The image that the containers are made of: the one that was named, or one that is built here without any registry.

`ZKCOORD_TEST_ZOOKEEPER_IMAGE` names an image that reads /conf/zoo.cfg and keeps its data in /data, such as the official
one; it is pulled if the engine lacks it. Else, or if it cannot be had, a Debian with Java is installed by debootstrap
(root only, about a minute), and ZooKeeper's jars are copied in out of PySpark. What was built is found again by a tag
that is a hash of all that goes in.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import docker
from docker.errors import APIError, BuildError, ImageNotFound

from zkcoord.embedded.java import pyspark_jars
from zkcoord.errors import UnavailableError

SETTING = "ZKCOORD_TEST_ZOOKEEPER_IMAGE"
BASE, IMAGE = "zkcoord-test-base", "zkcoord-test-zookeeper"
DOCKERFILE = Path(__file__).with_name("Dockerfile")
SUITE = "bookworm"
INSTALL = (
    *("unshare", "--mount"),  # what debootstrap mounts in there is gone with it, however it ends
    *("debootstrap", "--variant=minbase", "--include=openjdk-17-jre-headless", SUITE),
)
NEEDLESS = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale")
JARS = (
    "zookeeper-*.jar",
    "slf4j-api-*.jar",
    "log4j-api-*.jar",
    "log4j-core-*.jar",
    "log4j-slf4j2-impl-*.jar",
    "metrics-core-*.jar",
    "netty-[bchrt]*.jar",
    "snappy-java-*.jar",
)
INSTALL_DEADLINE_S = 600
ANSWER_S = 300  # the engine is silent while it imports

Say = Callable[[str], None]  # shows one line of progress


def zookeeper_image(say: Say) -> str:
    """The name of an image that the engine has; UnavailableError says why there can be none, and what to do."""
    client = docker.from_env(timeout=ANSWER_S)
    try:
        named = os.environ.get(SETTING)
        if named and _present_or_pulled(client, named, say):
            return named
        return _built(client, say)
    finally:
        client.close()


def _present_or_pulled(client: docker.DockerClient, name: str, say: Say) -> bool:
    if present(client, name):
        return True
    say(f"image {name}: pulling it")
    try:
        client.images.pull(name)
    except APIError as error:
        say(f"image {name} ({SETTING}) cannot be had, building one here: {error.explanation or error}")
        return False
    return True


def present(client: docker.DockerClient, name: str) -> bool:
    """True if the engine has this image."""
    try:
        client.images.get(name)
    except ImageNotFound:
        return False
    return True


def _built(client: docker.DockerClient, say: Say) -> str:
    """ZooKeeper's jars on the base."""
    jars = sorted({jar for pattern in JARS for jar in pyspark_jars().glob(pattern)})
    name = f"{IMAGE}:{digest([base_name(), DOCKERFILE.read_bytes(), *(part for jar in jars for part in _parts(jar))])}"
    if present(client, name):
        return name
    base = base_image(client, say)
    say(f"image {name}: {len(jars)} jars on {base}")
    try:
        client.images.build(
            fileobj=_context(jars), custom_context=True, buildargs={"BASE": base}, tag=name, rm=True, forcerm=True
        )
    except (APIError, BuildError) as error:
        raise UnavailableError(f"the image {name} cannot be built: {error}") from error
    return name


def base_name() -> str:
    """The base's name and tag."""
    return f"{BASE}:{digest([*INSTALL, *NEEDLESS])}"


def base_image(client: docker.DockerClient, say: Say) -> str:
    """Return the name of the Debian with Java, which is made if the engine lacks it."""
    name = base_name()
    if not present(client, name):
        _install_base(client, name, say)
    return name


def _install_base(client: docker.DockerClient, name: str, say: Say) -> None:
    """Install Debian with Java into a folder and import it."""
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        raise UnavailableError(
            f"an image for ZooKeeper is built by debootstrap, as root; else name one: {SETTING}=zookeeper:3.9"
        )
    begin = time.monotonic()
    say(f"image {name}: installing Debian {SUITE} with Java (once, about a minute)")
    with tempfile.TemporaryDirectory(prefix="zkcoord-base-") as made:
        folder, log = Path(made) / "root", Path(made) / "log"
        with log.open("wb") as output:
            done = subprocess.run(
                [*INSTALL, str(folder)], stdout=output, stderr=output, timeout=INSTALL_DEADLINE_S, check=False
            )
        if done.returncode != 0:
            raise UnavailableError(f"debootstrap ended with code {done.returncode}: {log.read_text()[-500:]}")
        for path in NEEDLESS:
            shutil.rmtree(folder / path, ignore_errors=True)
        say(f"image {name}: importing it")
        with subprocess.Popen(["tar", "-C", str(folder), "-c", "."], stdout=subprocess.PIPE) as tar:
            repository, tag = name.split(":")
            client.api.import_image_from_stream(tar.stdout, repository=repository, tag=tag)
        if tar.returncode != 0 or not present(client, name):
            raise UnavailableError(f"the image {name} could not be imported")
    say(f"image {name}: made in {time.monotonic() - begin:.0f} s")


def _context(jars: Sequence[Path]) -> io.BytesIO:
    """What the engine builds from: the Dockerfile and `jars/`."""
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        tar.add(DOCKERFILE, "Dockerfile")
        for jar in jars:
            tar.add(jar, f"jars/{jar.name}")
    context.seek(0)
    return context


def _parts(jar: Path) -> tuple[str, bytes]:
    return jar.name, hashlib.sha256(jar.read_bytes()).digest()


def digest(parts: Sequence[str | bytes]) -> str:
    """Twelve hex digits for everything that goes in."""
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        whole.update(len(data).to_bytes(8, "big") + data)
    return whole.hexdigest()[:12]
