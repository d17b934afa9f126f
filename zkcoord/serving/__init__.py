"""The coordinator's role: it stands for election, follows the groups, decides, and writes its decisions."""
