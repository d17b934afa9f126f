"""A coordinator's journal: it records each step of its loop with inputs and outputs, and can replay them."""
