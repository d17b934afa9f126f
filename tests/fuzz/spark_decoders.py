"""The decoders that need PySpark beside them."""

from __future__ import annotations

import json

import pyarrow as pa

from tests.fuzz.decoders import Decoder
from zkcoord.errors import UsageError
from zkcoord.spark.history.decoding import commits_of, parse_key, parse_value
from zkcoord.spark.stream.offsets import ranges_in

KEY = bytes.fromhex("00010001670001740000000f")  # g, t-15


def log_record(data: bytes) -> object:
    """One record of the offset log with these bytes as key, and one with them as value: both ways of decoding agree."""
    batch = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([KEY, data], pa.binary()),
            "value": pa.array([data, None], pa.binary()),
            "partition": pa.array([0, 0], pa.int32()),
            "offset": pa.array([7, 8], pa.int64()),
            "timestamp": pa.array([0, 0], pa.int64()).cast(pa.timestamp("us", "UTC")),
        }
    )
    rows = commits_of(batch).to_pylist()
    value = parse_value(data)
    assert rows[0]["offset"] == (None if value is None else value.offset), rows[0]
    assert len(rows) == (1 if parse_key(data) is None else 2), rows
    return rows


def checkpoint(data: bytes) -> object:
    """What Spark hands over is JSON, or it does not hand it over."""
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return ranges_in(said)


SPARK_DECODERS: dict[str, Decoder] = {
    "log record": Decoder(log_record),
    "checkpoint": Decoder(checkpoint, (UsageError,)),
}
