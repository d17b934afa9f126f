"""Uploads in parts that nobody has ended: S3 keeps their parts."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.spark.sinks.faulty_store import FaultyStore
from tests.spark.sinks.frames import batch, records
from tests.spark.sinks.s3_server import BUCKET, S3, arrow_options
from tests.spark.sinks.test_files_in_stores import FILES, PART, C, Place
from zkcoord.spark.sinks import uploads
from zkcoord.spark.sinks.uploads import Keys, abort_uploads, signed

pytestmark = [pytest.mark.spark, pytest.mark.s3]
DEADLINE_S = 60
WRITER = """
import os, sys, pyarrow.fs as fs
store = fs.S3FileSystem(**eval(sys.argv[1]), allow_delayed_open=True)
with store.open_output_stream(sys.argv[2]) as sink:
    sink.write(os.urandom(24_000_000))
"""


@pytest.fixture
def place(tmp_path: Path, s3: S3) -> Place:
    return Place(tmp_path, s3)


def begin(place: Place, s3: S3, *files: str) -> list[str]:
    """Uploads of these files, of which nobody sends a part. Return those that there are."""
    for each in files:
        status, body = s3.request("POST", f"/{BUCKET}/{place.folder.name}/{each}?uploads")
        assert status == 200, body
    return s3.uploads(place.folder.name)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.__dict__["zkcoord_event"] for each in caplog.records if "zkcoord_event" in each.__dict__]


def test_f318_the_upload_of_a_killed_writer_goes_when_its_range_comes_again(place: Place, s3: S3) -> None:
    with FaultyStore(s3.port).running() as faulty:
        slow = faulty.add("slow", "PUT", f"{PART}=2", wait_s=60.0)
        where = [repr(dict(arrow_options(faulty.endpoint))), f"{BUCKET}/{place.folder.name}/{FILES[0]}"]
        with subprocess.Popen([sys.executable, "-c", WRITER, *where], env={**os.environ}) as writer:
            until = time.monotonic() + DEADLINE_S
            while not slow.met and time.monotonic() < until:
                time.sleep(0.02)
            writer.kill()
    assert (place.files(), s3.uploads(place.folder.name)) == ([], FILES[:1])
    place.write(C, to=replace(batch(C, replayed=True), generation=2))
    assert (place.files(), place.rows(), s3.uploads(place.folder.name)) == (FILES[:1], records(C), [])


def test_f318_only_uploads_of_a_repeated_batch_and_of_what_came_before_it_go(place: Place, s3: S3) -> None:
    """Others may belong to one that writes now."""
    later = "clicks-0-13-20.parquet"
    others = [FILES[1], "clicks.parquet", f"deeper/{FILES[0]}", later]
    begun = begin(place, s3, *FILES[:1], "clicks-0-0-10.parquet", *others)
    assert len(begun) == 6
    place.write(C)
    assert s3.uploads(place.folder.name) == begun
    place.write(C, to=batch(C, replayed=True))
    assert s3.uploads(place.folder.name) == sorted(others)


def test_f318_the_upload_of_one_file_may_be_many(place: Place, s3: S3) -> None:
    assert begin(place, s3, *FILES[:1] * 3) == FILES[:1] * 3
    place.write(C, to=batch(C, replayed=True))
    assert (place.files(), s3.uploads(place.folder.name)) == (FILES[:1], [])


def test_keys_of_the_environment_are_used_and_without_keys_nobody_is_asked(
    place: Place, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = partial(place.write, C, to=batch(C, replayed=True))
    for variable, option in (("AWS_ACCESS_KEY_ID", "access_key"), ("AWS_SECRET_ACCESS_KEY", "secret_key")):
        monkeypatch.setenv(variable, place.options.pop(option))
    begin(place, s3, *FILES[:1])
    place.options["anonymous"] = True
    write()
    assert s3.uploads(place.folder.name) == FILES[:1]
    del place.options["anonymous"]
    write()
    assert s3.uploads(place.folder.name) == []


def test_a_store_that_does_not_list_uploads_gets_the_batch_all_the_same(
    place: Place, s3: S3, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    begin(place, s3, *FILES[:1])
    with FaultyStore(s3.port).running() as faulty:
        place.options["endpoint_override"] = faulty.endpoint
        faulty.add("busy", "GET", "uploads")
        place.write(C, to=batch(C, replayed=True))
    assert (place.files(), told(caplog)) == (FILES[:1], ["uploads_left"])


def test_a_list_of_many_uploads_is_read_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    page = '<A xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Upload><Key>in/{0} +</Key><UploadId>u/{0}</UploadId>'
    page += "</Upload><IsTruncated>{1}</IsTruncated><NextKeyMarker>in/1 +</NextKeyMarker></A>"
    answers = [page.format(1, "true"), page.format(2, "false"), "", ""]
    asked: list[tuple[str, str]] = []

    def answer(request: Any, **_: Any) -> io.BytesIO:
        asked.append((request.method, request.full_url))
        return io.BytesIO(answers.pop(0).encode())

    monkeypatch.setattr(uploads, "urlopen", answer)
    store: Any = SimpleNamespace(base_path="lake/in/", base_fs=SimpleNamespace(type_name="s3", region="eu-central-1"))
    assert abort_uploads(store, {"access_key": "a", "secret_key": "b"}, lambda file: file[0] in "12") == 2
    lake = "https://s3.eu-central-1.amazonaws.com/lake"
    assert asked == [
        ("GET", f"{lake}?prefix=in%2F&uploads="),
        ("GET", f"{lake}?key-marker=in%2F1%20%2B&prefix=in%2F&upload-id-marker=&uploads="),
        ("DELETE", f"{lake}/in/1%20%2B?uploadId=u%2F1"),
        ("DELETE", f"{lake}/in/2%20%2B?uploadId=u%2F2"),
    ]


@pytest.mark.parametrize(
    ("query", "signature"),
    [
        ("lifecycle=", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        ("max-keys=2&prefix=J", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
    ],
)
def test_requests_are_signed_as_in_the_examples_of_s3s_documentation(query: str, signature: str) -> None:
    keys = Keys("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    url = f"https://examplebucket.s3.amazonaws.com/?{query}"
    made = signed("GET", url, keys, "us-east-1", datetime(2013, 5, 24, tzinfo=UTC))
    assert made.get_header("Authorization") == (
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
        f"SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature={signature}"
    )
