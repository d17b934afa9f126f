"""The assignors of the old high-level consumers, bit for bit."""
