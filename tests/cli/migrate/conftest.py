"""Two trees on a real server, for the commands that move groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.integration.world import World


def chroot_of(hosts: str, path: str) -> str:
    client = KazooClient(hosts, timeout=30)
    client.start(timeout=120)
    client.create(path)
    client.stop()
    client.close()
    return hosts + path


@pytest.fixture
def here(chroot: str) -> Iterator[World]:
    with World(chroot) as world:
        world.topic("clicks", 2)
        yield world


@pytest.fixture
def there(chroot: str, zookeeper: Any) -> Iterator[World]:
    with World(chroot_of(zookeeper.hosts, "/" + chroot.partition("/")[2] + "-there")) as world:
        world.topic("clicks", 2)
        yield world
