"""The command line under test, as in tests/cli."""

from tests.cli.conftest import no_settings_from_outside, run

__all__ = ["no_settings_from_outside", "run"]
