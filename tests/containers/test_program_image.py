"""The image that `deploy/Dockerfile` makes: a coordinator runs in it, is ready, and ends in good order."""

from __future__ import annotations

import io
import ssl
import tarfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError

import docker
import pytest
from docker.models.containers import Container

from tests.containers.conftest import teller
from tests.containers.image import ANSWER_S, Say, base_image, digest, present
from tests.waiting import wait_until
from zkcoord.embedded.server import LOOPBACK, free_ports

pytestmark = [pytest.mark.docker, pytest.mark.zookeeper]

ROOT = Path(__file__).parents[2]
PYTHON = Path(__file__).with_name("PythonDockerfile")
HOST = {"network_mode": "host", "rm": True, "forcerm": True}  # pip and apt reach what this machine reaches


@pytest.fixture(scope="module")
def client() -> Iterator[docker.DockerClient]:
    client = docker.from_env(timeout=ANSWER_S)
    yield client
    client.close()


@pytest.fixture(scope="module")
def program_image(client: docker.DockerClient, request: pytest.FixtureRequest) -> Iterator[str]:
    """Built from this checkout, on a Debian with Python; removed in the end."""
    python, built = python_image(client, teller(request.config)), "zkcoord-test-program:1"
    try:
        client.images.build(
            path=str(ROOT), dockerfile="deploy/Dockerfile", buildargs={"PYTHON_IMAGE": python}, tag=built, **HOST
        )
        yield built
    finally:
        client.images.remove(built, force=True)


def python_image(client: docker.DockerClient, say: Say) -> str:
    """Return the name of a Debian with Python, which is made if the engine lacks it."""
    certificates = Path(ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt")
    base = base_image(client, say)
    name = f"zkcoord-test-python:{digest([base, PYTHON.read_bytes(), certificates.read_bytes()])}"
    if not present(client, name):
        say(f"image {name}: Python on {base}")
        context = io.BytesIO()
        with tarfile.open(fileobj=context, mode="w") as tar:
            tar.add(PYTHON, "Dockerfile")
            tar.add(certificates.resolve(), "certificates.crt")
        context.seek(0)
        client.images.build(fileobj=context, custom_context=True, buildargs={"BASE": base}, tag=name, **HOST)
    return name


@pytest.fixture
def coordinator(client: docker.DockerClient, program_image: str, chroot: str) -> Iterator[tuple[Container, str]]:
    """It runs with the image's own command, but for the port of its metrics; and where these are."""
    address = f"{LOOPBACK}:{free_ports(1)[0]}"
    command = client.images.get(program_image).attrs["Config"]["Cmd"]
    assert command == ["coordinator", "--metrics", ":9464", "--log-format", "json"]
    runs = client.containers.run(
        program_image,
        [address if word == ":9464" else word for word in command],
        environment={"ZKCOORD_ZOOKEEPER": chroot},
        network_mode="host",
        detach=True,
    )
    yield runs, address
    runs.remove(force=True)


def test_a_coordinator_in_the_image_is_ready_and_ends_cleanly(coordinator: tuple[Container, str]) -> None:
    runs, address = coordinator

    def ready() -> bool:
        try:
            with urllib.request.urlopen(f"http://{address}/readyz") as answer:
                return bool(answer.status == 200)
        except URLError:
            return False

    wait_until(ready, "the coordinator serves")
    assert runs.exec_run(["id", "-un"]).output == b"zkcoord\n", "it is not root"
    runs.kill("SIGTERM")
    assert runs.wait()["StatusCode"] == 0, runs.logs().decode()


def test_the_image_has_the_other_programs_too(client: docker.DockerClient, program_image: str) -> None:
    for words in (["--version"], ["consume", "--help"], ["page", "--help"]):
        assert client.containers.run(program_image, words, remove=True, network_mode="none")
