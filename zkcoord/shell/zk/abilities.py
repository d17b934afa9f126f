"""The abilities of the servers of one connect string, as found out. The sessions of a factory share them."""

from __future__ import annotations

import logging

_LOG = logging.getLogger("zkcoord.zk")


class Abilities:
    """The servers' abilities, and what was logged about them."""

    def __init__(self) -> None:
        self.multi_read: bool | None = None  # None: not asked yet
        self.keeps_watches = True  # only counts with multi-reads: both came with the same release
        self.told_timeout_ms = 0  # the last other timeout that was logged; 0: none
        self.told_unreachable = False  # True if it was logged, and no server has accepted a session since

    def no_kept_watches(self, hosts: str, why: str) -> None:
        """Ask for no more persistent watches, and log so once. `why` is the server's error."""
        told, self.keeps_watches = not self.keeps_watches, False
        if not told:
            _LOG.warning(
                "ZooKeeper at %s refuses watches that stay (addWatch: %s): nodes are watched anew after each change,"
                " with more requests; its setting zookeeper.watchManagerName may be the cause",
                *(hosts, why),
            )
