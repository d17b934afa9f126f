"""Reads nodes' ACLs, for a tool that looks at a deployment. It uses one short session of its own."""

from __future__ import annotations

from collections.abc import Collection

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from zkcoord.errors import UnavailableError
from zkcoord.shell.zk.config import EVERYTHING, ZooKeeperConfig


def open_to_everybody(
    address: str, paths: Collection[str], config: ZooKeeperConfig, *, timeout_ms: int
) -> tuple[str, ...]:
    """Return those of these nodes that exist and on which everybody has all rights.

    Nodes whose ACL cannot be read are left out. Raises UnavailableError if ZooKeeper does not answer.
    """
    client = KazooClient(hosts=address, read_only=True, **config.client_settings())
    try:
        client.start(timeout=timeout_ms / 1000)
        found = []
        for path in paths:
            try:
                acls, _ = client.get_acls(path)
            except KazooException:
                continue
            if any(each.perms == EVERYTHING and (each.id.scheme, each.id.id) == ("world", "anyone") for each in acls):
                found.append(path)
    except KazooTimeoutError as error:
        raise UnavailableError(f"ZooKeeper at {address} does not answer: {error}") from error
    finally:
        client.stop()
        client.close()
    return tuple(found)
