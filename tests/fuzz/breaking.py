"""Gives bytes to all decoders that can run here."""

from __future__ import annotations

from importlib.util import find_spec

from tests.fuzz.decoders import DECODERS, Decoder

ALL: dict[str, Decoder] = dict(DECODERS)
if find_spec("pyspark"):
    from tests.fuzz.spark_decoders import SPARK_DECODERS

    ALL |= SPARK_DECODERS


def broken_by(data: bytes) -> list[str]:
    """The decoders that these bytes break, with what they raise; none is the right answer."""
    found = []
    for name, (decode, refuses) in ALL.items():
        try:
            decode(data)
        except refuses:
            continue
        except BaseException as error:
            found.append(f"{name}: {type(error).__name__}: {error}")
    return found
