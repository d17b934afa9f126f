"""Shows zkcoord's main job on servers of its own: a group is rebalanced while records flow, and every record is
counted.
"""

from zkcoord.demo.options import Options
from zkcoord.demo.run import run

__all__ = ["Options", "run"]
