"""Examines a deployment before and after zkcoord is installed, and reports what does not fit; writes nothing."""
