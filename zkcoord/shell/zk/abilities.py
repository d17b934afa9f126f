"""What the servers of one connect string can do, as found out; shared by the sessions of a factory."""

from __future__ import annotations

import logging

_LOG = logging.getLogger("zkcoord.zk")


class Abilities:
    """Abilities of the servers, and what was said of them."""

    def __init__(self) -> None:
        self.multi_read: bool | None = None  # None: no server was asked yet
        self.keeps_watches = True  # where there are multi-reads: they came with the same release
        self.told_timeout_ms = 0  # another session timeout than was asked for; 0: none was told
        self.told_unreachable = False  # it was logged, and none has accepted a session since

    def no_kept_watches(self, hosts: str, why: str) -> None:
        """Ask for no more watches that stay, and log so once. `why`: the server's error."""
        told, self.keeps_watches = not self.keeps_watches, False
        if not told:
            _LOG.warning(
                "ZooKeeper at %s refuses watches that stay (addWatch: %s): nodes are watched anew after each change,"
                " with more requests; its setting zookeeper.watchManagerName may be the cause",
                *(hosts, why),
            )
