"""Calls of the command line leave logging and environment as they were, as in tests/cli."""

from tests.cli.conftest import no_settings_from_outside

__all__ = ["no_settings_from_outside"]
