"""How bad it is what the doctor or the audit has found."""

from __future__ import annotations

from enum import IntEnum


class Severity(IntEnum):
    """How bad a finding is; a larger one is worse. For programs it is its name."""

    OK = 0
    INFO = 1
    WARN = 2
    ERR = 3  # records are not read, or may be read twice, or zkcoord cannot work here
