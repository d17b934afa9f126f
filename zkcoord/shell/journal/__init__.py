"""A coordinator's journal: records each step of its loop with inputs and outputs, and plays it again."""
