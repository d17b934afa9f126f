"""Looks at a deployment before and after zkcoord comes in, and says what does not fit; writes nothing."""
