"""What `zkcoord audit --metrics` shows of an audit that has ended: nothing."""

from __future__ import annotations

import re
import urllib.request

from tests.migrate.memory_tree import MemoryTree
from zkcoord.audit.audit import Audit
from zkcoord.audit.auditor import Auditor
from zkcoord.cli.audit import _served
from zkcoord.embedded.server import LOOPBACK, free_ports


def test_a_second_audit_in_a_process_shows_its_own_readings_alone() -> None:
    address = f"{LOOPBACK}:{free_ports(1)[0]}"
    shown = []
    for _ in range(2):
        auditor = Auditor(MemoryTree(), "nowhere", Audit(1, 1, readings=3))
        with _served(address, auditor), urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        shown += re.findall(r'^zkcoord_audit_readings_total\{outcome="ok"\} (\S+)$', text, re.MULTILINE)

    assert shown == ["3.0", "3.0"]
