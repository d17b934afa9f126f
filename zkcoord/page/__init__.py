"""The web page of groups, coordinators and problems, with an operator's actions (docs/page.md). Off by default."""
