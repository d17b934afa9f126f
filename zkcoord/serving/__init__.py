"""The coordinator's role: stands for election, follows the groups, decides, and writes what it decided."""
