"""The consumer's role: it joins a group, reads its channel, obeys the commands, keeps its lease, commits and leaves."""
