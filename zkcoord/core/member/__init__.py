"""One member, as it sees itself: from what was read and what its application does, decide what to do next. Pure."""
