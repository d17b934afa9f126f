"""ZooKeeper's address and login: the connect string `H:P[,H:P…][/chroot]` and the file `--zookeeper-config`."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from zkcoord.errors import UsageError
from zkcoord.shell.zk import jute

DEFAULT_PORT = 2181
PERMISSIONS = {"r": 1, "w": 2, "c": 4, "d": 8, "a": 16}
EVERYTHING = sum(PERMISSIONS.values())
SASL = "sasl."


class Address(NamedTuple):
    """A parsed connect string; `chroot` is "" or "/a/b"."""

    hosts: tuple[tuple[str, int], ...]
    chroot: str

    @property
    def hosts_text(self) -> str:
        """The hosts as kazoo and people write them, without the chroot."""
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)


class Acl(NamedTuple):
    """One entry of the ACL of created nodes."""

    permissions: int
    scheme: str
    who: str


OPEN = (Acl(EVERYTHING, "world", "anyone"),)
CREATOR = (Acl(EVERYTHING, "auth", ""),)
CREATOR_WORLD_READS = (*CREATOR, Acl(PERMISSIONS["r"], "world", "anyone"))
NAMED_ACLS = {"open": OPEN, "creator": CREATOR, "creator-world-reads": CREATOR_WORLD_READS}


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperConfig:
    """Authentication, encryption and the ACL of created nodes. Secrets are not shown by `repr`."""

    digest: str = field(default="", repr=False)  # user:password
    sasl: Mapping[str, str] = field(default_factory=dict, repr=False)  # options of pure-sasl: mechanism, username, …
    tls: bool = False
    tls_certificate: str = ""
    tls_key: str = ""
    tls_key_password: str = field(default="", repr=False)
    tls_ca: str = ""
    tls_verify: bool = True
    tls_check_hostname: bool = False
    acl: tuple[Acl, ...] = OPEN

    def client_settings(self) -> dict[str, Any]:
        """Return the arguments of a KazooClient."""
        return {
            "auth_data": [("digest", self.digest)] if self.digest else [],
            "sasl_options": dict(self.sasl) or None,
            "use_ssl": self.tls,
            "certfile": self.tls_certificate or None,
            "keyfile": self.tls_key or None,
            "keyfile_password": self.tls_key_password or None,
            "ca": self.tls_ca or None,
            "verify_certs": self.tls_verify,
            "check_hostname": self.tls_check_hostname,
        }

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the TLS context for connections that kazoo does not make. None: no encryption. Raises OSError for
        unreadable files."""
        if not self.tls:
            return None
        context = ssl.create_default_context(cafile=self.tls_ca or None)
        context.check_hostname = self.tls_check_hostname
        if not self.tls_verify:
            context.verify_mode = ssl.CERT_NONE
        if self.tls_certificate:
            context.load_cert_chain(self.tls_certificate, self.tls_key, self.tls_key_password)  # "": it does not ask
        return context

    def acl_bytes(self) -> bytes:
        """Return the ACL in the form in which a create sends it."""
        return jute.acls(self.acl)


def parse_connect(connect: str) -> Address:
    """Split `H:P[,H:P…][/chroot]`. A missing port is 2181. Raises UsageError that says what is wrong.

    >>> parse_connect("zk1:2181,zk2/prod/kafka")
    Address(hosts=(('zk1', 2181), ('zk2', 2181)), chroot='/prod/kafka')
    """
    if not isinstance(connect, str):
        raise UsageError(f"ZooKeeper address {connect!r}: write HOST:PORT[,HOST:PORT…][/chroot]")
    text = connect.strip()
    if "://" in text:
        raise UsageError(f"ZooKeeper address {connect!r}: it is no URL; write HOST:PORT[,HOST:PORT…][/chroot]")
    names, slash, below = text.partition("/")
    hosts = tuple(_host(part.strip(), connect) for part in names.split(","))
    if not slash or not below:
        return Address(hosts, "")
    if "," in below:
        raise UsageError(f"ZooKeeper address {connect!r}: the chroot stands once, after the last host")
    if below.endswith("/"):
        raise UsageError(f"ZooKeeper address {connect!r}: the chroot must not end with /")
    if any(name in ("", ".", "..") for name in below.split("/")):
        raise UsageError(f"ZooKeeper address {connect!r}: the chroot has an empty or relative name in it")
    return Address(hosts, "/" + below)


def _host(part: str, connect: str) -> tuple[str, int]:
    if not part:
        raise UsageError(f"ZooKeeper address {connect!r}: a host is missing; write HOST:PORT[,HOST:PORT…][/chroot]")
    if part.startswith("["):
        host, bracket, rest = part[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise UsageError(f"ZooKeeper address {connect!r}: {part!r} is no IPv6 address; write it as in [::1]:2181")
        colon, port = rest[:1], rest[1:]
    else:
        host, colon, port = part.partition(":")
    if part.count(":") > 1 and not part.startswith("["):
        raise UsageError(
            f"ZooKeeper address {connect!r}: {part!r} has more than one colon; an IPv6 address stands in brackets,"
            " as in [::1]:2181"
        )
    if not host or any(c.isspace() for c in host) or not _may_be_looked_up(host):
        raise UsageError(f"ZooKeeper address {connect!r}: {part!r} names no host")
    if not colon:
        return host, DEFAULT_PORT
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise UsageError(
            f"ZooKeeper address {connect!r}: {port!r} is no port (1 to 65535); write HOST:PORT[,HOST:PORT…]"
        )
    return host, int(port)


def _may_be_looked_up(host: str) -> bool:
    """Return False for a name that Python cannot look up: a part of it is empty, or longer than 63 characters."""
    try:
        return bool(host.encode("idna"))
    except UnicodeError:
        return False


def load_config(path: Path | str) -> ZooKeeperConfig:
    """Read a file of lines `key = value` (`#` begins a comment line). Raises UsageError that names the wrong line.

    digest = USER:PASSWORD              digest authentication
    sasl.mechanism = DIGEST-MD5         SASL (needs pure-sasl); sasl.username, sasl.password, sasl.service,
                                        sasl.principal and every other option of pure-sasl likewise
    tls = true|false                    encrypt; then also, each optional:
    tls.certificate = FILE              the client's certificate (PEM)
    tls.key = FILE                      its key, and
    tls.key.password = TEXT             what the key is locked with
    tls.ca = FILE                       whom to trust (default: the system's)
    tls.verify = true|false             check the server's certificate (true)
    tls.check-hostname = true|false     and the name in it (false)
    acl = open|creator|creator-world-reads|SCHEME:ID:PERMS[,…]
                                        of created nodes (open); PERMS out of cdrwa
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(
            f"the ZooKeeper configuration {path} cannot be read ({why}); name a file that can be read"
        ) from error
    found: dict[str, Any] = {}
    sasl: dict[str, str] = {}
    for number, raw in enumerate(lines, start=1):
        line = raw.strip()
        if not line or line[0] in "#!":
            continue
        key, equals, value = (part.strip() for part in line.partition("="))
        where = f"{path}, line {number}"
        if not equals or not value:
            raise UsageError(f"{where}: write key = value")
        if key.startswith(SASL) and key != SASL:
            sasl[key.removeprefix(SASL)] = value
        elif key in _KEYS:
            name, read = _KEYS[key]
            found[name] = read(value, f"{where}: {key}")
        else:
            raise UsageError(f"{where}: there is no key {key!r}; known: {', '.join(_KEYS)}, sasl.…")
    _check(sasl, found, path)
    config = ZooKeeperConfig(sasl=sasl, **found)
    try:  # else each connection would fail, as if the server did not answer
        config.tls_context()
    except OSError as error:
        files = "correct tls.ca, tls.certificate, tls.key or tls.key.password"
        raise UsageError(f"{path}: TLS cannot use what it names ({error}): {files}") from error
    return config


def _check(sasl: Mapping[str, str], found: Mapping[str, Any], path: Path | str) -> None:
    if sasl and "mechanism" not in sasl:
        raise UsageError(f"{path}: sasl.mechanism is missing (DIGEST-MD5, GSSAPI, …)")
    if sasl and find_spec("puresasl") is None:
        raise UsageError(f"{path}: SASL needs a further package: pip install pure-sasl")
    if bool(found.get("tls_certificate")) != bool(found.get("tls_key")):
        raise UsageError(f"{path}: tls.certificate and tls.key go together")
    if not found.get("tls") and any(name.startswith("tls_") for name in found):
        raise UsageError(f"{path}: there are keys of TLS, but not tls = true")
    if found.get("tls_check_hostname") and not found.get("tls_verify", True):
        raise UsageError(f"{path}: tls.check-hostname needs tls.verify = true")
    logs_in = sasl or found.get("digest") or found.get("tls_certificate")
    if not logs_in and any(acl.scheme == "auth" for acl in found.get("acl", ())):
        raise UsageError(
            f"{path}: this acl is for who logs in, and nobody does: give digest, sasl.… or tls.certificate"
        )


def _plain(value: str, _where: str) -> str:
    return value


def _digest(value: str, where: str) -> str:
    user, colon, password = value.partition(":")
    if not (user and colon and password):
        raise UsageError(f"{where}: write USER:PASSWORD")
    return value


def _file(value: str, where: str) -> str:
    if not Path(value).is_file():
        raise UsageError(f"{where}: there is no file {value}")
    return value


def _flag(value: str, where: str) -> bool:
    if value not in ("true", "false"):
        raise UsageError(f"{where}: write true or false, not {value!r}")
    return value == "true"


def _acl(value: str, where: str) -> tuple[Acl, ...]:
    return NAMED_ACLS.get(value) or tuple(_acl_entry(part.strip(), where) for part in value.split(","))


def _acl_entry(text: str, where: str) -> Acl:
    scheme, _, rest = text.partition(":")
    who, _, letters = rest.rpartition(":")
    if not scheme or not letters or not set(letters) <= PERMISSIONS.keys():
        raise UsageError(f"{where}: {text!r} is none of {', '.join(NAMED_ACLS)} and no SCHEME:ID:PERMS (of cdrwa)")
    return Acl(sum(PERMISSIONS[letter] for letter in set(letters)), scheme, who)


_KEYS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "digest": ("digest", _digest),
    "tls": ("tls", _flag),
    "tls.certificate": ("tls_certificate", _file),
    "tls.key": ("tls_key", _file),
    "tls.key.password": ("tls_key_password", _plain),
    "tls.ca": ("tls_ca", _file),
    "tls.verify": ("tls_verify", _flag),
    "tls.check-hostname": ("tls_check_hostname", _flag),
    "acl": ("acl", _acl),
}
