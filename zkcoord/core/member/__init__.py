"""One member, as it sees itself: what was read and what its application does, and what to do next. Pure."""
