"""A member's role: joins a group, drains its channel, obeys, keeps its lease, commits, leaves."""
