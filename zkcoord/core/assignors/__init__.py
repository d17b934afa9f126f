"""Assignors: pure functions from a group to an assignment."""

from zkcoord.core.assignors.contract import (
    AssignmentError,
    Assignor,
    AssignorInput,
    ask,
    check_assignment,
    unassigned,
)
from zkcoord.core.assignors.registry import ASSIGNORS

__all__ = ["ASSIGNORS", "AssignmentError", "Assignor", "AssignorInput", "ask", "check_assignment", "unassigned"]
