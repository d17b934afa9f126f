"""The file that `zkcoord migrate new` writes: a revision that changes nothing yet."""

from __future__ import annotations

import re
from collections.abc import Sequence

from zkcoord.errors import UsageError
from zkcoord.migrate.revision import Revision

TEXT = '''"""What is different afterwards, in one line: `zkcoord migrate history` shows it.

Why, and what nobody sees from the writes.
"""

from __future__ import annotations

from collections.abc import Mapping

from zkcoord.tree.snapshot import Node
from zkcoord.tree.writes import Write

revision = "{revision}"
down_revision = "{down}"


def reads(layout_name: str) -> tuple[str, ...]:
    """The paths that the functions below must see; `*` stands for every child."""
    return ()


def upgrade(snapshot: Mapping[str, Node], layout_name: str) -> tuple[Write, ...]:
    """What remains to be written, each with the version that was read; of a changed tree nothing."""
    return ()


def downgrade(snapshot: Mapping[str, Node], layout_name: str) -> tuple[Write, ...]:
    """The same, back."""
    return ()
'''


def template(known: Sequence[Revision], name: str) -> tuple[str, str]:
    """Return the file name and the text of the next revision."""
    if not re.fullmatch(r"[a-z0-9_]+", name):
        raise UsageError(f"{name!r} is no name of a revision: use small letters, digits and _")
    down = known[-1].revision
    revision = f"{int(down) + 1:04d}"
    return f"{revision}_{name}.py", TEXT.format(revision=revision, down=down)
