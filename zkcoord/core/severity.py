"""How bad a finding of the doctor or the audit is."""

from __future__ import annotations

from enum import IntEnum


class Severity(IntEnum):
    """How bad a finding is; a larger value is worse. Programs see its name."""

    OK = 0
    INFO = 1
    WARN = 2
    ERR = 3  # records are not read, or may be read twice, or zkcoord cannot work here
