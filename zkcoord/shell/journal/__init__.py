"""The journal of a coordinator: what went into its loop at every step and what came out, and playing that again."""
