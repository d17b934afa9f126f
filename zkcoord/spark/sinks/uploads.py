"""Aborts S3 uploads that dead writers have left. Their parts are no file, but they are stored and paid for.

Arrow can neither list uploads nor abort one. So this module sends two of S3's own requests, signed with the keys in the
options or in the environment. Without such keys (a machine's role, a profile) it does nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import ssl
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen
from xml.etree import ElementTree

from pyarrow import fs

REQUEST_S = 10
NO_BODY = hashlib.sha256(b"").hexdigest()
METHOD = "AWS4-HMAC-SHA256"
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")  # environment variables that Arrow knows


class Keys(NamedTuple):
    """Credentials of a user."""

    access_key: str
    secret_key: str
    session_token: str | None = None


def abort_uploads(store: fs.SubTreeFileSystem, options: Mapping[str, Any], ended: Callable[[str], bool]) -> int:
    """Abort the uploads of files for which `ended` is true. Return their number: 0 in a store that is not S3, or
    without keys.

    Raises OSError if the store refuses it.
    """
    keys = _keys(options)
    if store.base_fs.type_name != "s3" or keys is None:
        return 0
    bucket, _, folder = store.base_path.partition("/")
    region = store.base_fs.region
    certificates = options.get("tls_ca_file_path")

    def ask(method: str, key: str, query: Mapping[str, str]) -> bytes:
        spelled = "&".join(f"{name}={quote(query[name], safe='')}" for name in sorted(query))
        url = f"{_endpoint(options, region)}/{quote(f'{bucket}/{key}' if key else bucket)}?{spelled}"
        context = ssl.create_default_context(cafile=certificates) if certificates else None
        with urlopen(signed(method, url, keys, region, datetime.now(UTC)), timeout=REQUEST_S, context=context) as told:
            return bytes(told.read())

    left: list[tuple[str, str]] = []
    more: dict[str, str] | None = {}
    while more is not None:
        page = ElementTree.fromstring(ask("GET", "", {"uploads": "", "prefix": folder, **more}))
        left += [(_text(each, "Key"), _text(each, "UploadId")) for each in page.iterfind("{*}Upload")]
        more = None
        if _text(page, "IsTruncated") == "true":
            more = {"key-marker": _text(page, "NextKeyMarker"), "upload-id-marker": _text(page, "NextUploadIdMarker")}
    left = [(key, upload) for key, upload in left if ended(key.removeprefix(folder))]
    for key, upload in left:
        ask("DELETE", key, {"uploadId": upload})
    return len(left)


def _text(page: ElementTree.Element, name: str) -> str:
    return page.findtext(f"{{*}}{name}", "")


def _keys(options: Mapping[str, Any]) -> Keys | None:
    if options.get("access_key"):
        return Keys(options["access_key"], options["secret_key"], options.get("session_token"))
    if options.get("role_arn") or options.get("anonymous"):
        return None
    access, secret = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    return Keys(access, secret, os.environ.get("AWS_SESSION_TOKEN")) if access and secret else None


def _endpoint(options: Mapping[str, Any], region: str) -> str:
    in_environment = (os.environ[name] for name in ENDPOINTS if os.environ.get(name))
    endpoint = options.get("endpoint_override") or next(in_environment, f"s3.{region}.amazonaws.com")
    return str(endpoint if "://" in endpoint else f"{options.get('scheme') or 'https'}://{endpoint}").rstrip("/")


def signed(method: str, url: str, keys: Keys, region: str, now: datetime) -> Request:
    """Return a request without a body, signed as AWS asks for it (Signature Version 4).

    The URL's query must be sorted, and all its values quoted.
    """
    parts, at = urlsplit(url), now.strftime("%Y%m%dT%H%M%SZ")
    headers = {"host": parts.netloc, "x-amz-content-sha256": NO_BODY, "x-amz-date": at}
    if keys.session_token:
        headers["x-amz-security-token"] = keys.session_token
    names = ";".join(headers)
    lines = [
        method,
        parts.path,
        parts.query,
        *(f"{name}:{value}" for name, value in headers.items()),
        "",
        names,
        NO_BODY,
    ]
    scope = (at[:8], region, "s3", "aws4_request")
    canonical = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    key = f"AWS4{keys.secret_key}".encode()
    for word in (*scope, "\n".join([METHOD, at, "/".join(scope), canonical])):
        key = hmac.digest(key, word.encode(), "sha256")
    said = f"{METHOD} Credential={keys.access_key}/{'/'.join(scope)}, SignedHeaders={names}, Signature={key.hex()}"
    return Request(url, headers={**headers, "Authorization": said}, method=method)
