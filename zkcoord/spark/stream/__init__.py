"""The structured streaming source."""
