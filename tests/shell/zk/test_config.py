"""The connect string and the configuration file."""

from pathlib import Path

import pytest

from tests.certificate import CERTIFICATE, LOCKED_KEY
from zkcoord.errors import UsageError
from zkcoord.shell.zk.config import OPEN, Acl, Address, ZooKeeperConfig, load_config, parse_connect


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("a:1", Address((("a", 1),), "")),
        ("a", Address((("a", 2181),), "")),
        ("a:1,b:2/x", Address((("a", 1), ("b", 2)), "/x")),
        ("a:1/x/y-z", Address((("a", 1),), "/x/y-z")),
        ("a:1/", Address((("a", 1),), "")),
        ("[::1]:7,[fe80::1]", Address((("::1", 7), ("fe80::1", 2181)), "")),
        (" a:1 , b:2 ", Address((("a", 1), ("b", 2)), "")),
    ],
)
def test_a_connect_string_is_hosts_and_a_chroot(text: str, address: Address) -> None:
    assert parse_connect(text) == address


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a host is missing"),
        ("/x", "a host is missing"),
        ("a:1,,b:2", "a host is missing"),
        ("a:", "'' is no port"),
        ("a:x", "'x' is no port"),
        ("a:0", "'0' is no port"),
        ("a:70000", "'70000' is no port"),
        ("a:1:2", "'a:1:2' has more than one colon"),
        ("a:1,::1:2181", "'::1:2181' has more than one colon; an IPv6 address stands in brackets, as in [::1]:2181"),
        (":1", "names no host"),
        ("a b:1", "names no host"),
        ("zk1..prod:1", "'zk1..prod:1' names no host"),
        (f"{'a' * 64}:1", "names no host"),
        ("[::1:7", "'[::1:7' is no IPv6 address; write it as in [::1]:2181"),
        ("a:1/x/", "must not end with /"),
        ("a:1//x", "an empty or relative name"),
        ("a:1/x/../y", "an empty or relative name"),
        ("a:1/x,b:2", "the chroot stands once"),
        ("a:1\\x", "is no port"),
        ("http://a:1", "it is no URL; write HOST:PORT[,HOST:PORT…][/chroot]"),
    ],
)
def test_a_wrong_connect_string_is_the_callers_error_and_says_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(UsageError, match="ZooKeeper address") as error:
        parse_connect(text)
    assert message in str(error.value)


def test_the_hosts_are_spelled_without_the_chroot() -> None:
    assert parse_connect("a:1,[::1]:2/x").hosts_text == "a:1,[::1]:2"


def write(folder: Path, text: str) -> Path:
    path = folder / "zookeeper.properties"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_configuration_file_is_read(tmp_path: Path) -> None:
    ca = write(tmp_path, CERTIFICATE).rename(tmp_path / "ca.pem")
    path = write(
        tmp_path,
        f"# who we are\n! also a comment\n\ndigest = alice:s=cret\ntls=true\ntls.ca = {ca}\ntls.verify = false\n"
        "acl = digest:alice:h4sh=:cdrwa, world:anyone:r, ip:10.0.0.0/8:rw\n",
    )

    config = load_config(path)

    acl = (Acl(31, "digest", "alice:h4sh="), Acl(1, "world", "anyone"), Acl(3, "ip", "10.0.0.0/8"))
    assert config == ZooKeeperConfig(digest="alice:s=cret", tls=True, tls_ca=str(ca), tls_verify=False, acl=acl)
    assert "cret" not in repr(config)
    settings = config.client_settings()
    assert settings["auth_data"] == [("digest", "alice:s=cret")]
    assert (settings["use_ssl"], settings["ca"], settings["verify_certs"]) == (True, str(ca), False)


def test_an_empty_file_is_the_default(tmp_path: Path) -> None:
    assert load_config(write(tmp_path, "")) == ZooKeeperConfig(acl=OPEN)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("colour = red", "line 1: there is no key 'colour'; known: digest, tls"),
        ("\ndigest", "line 2: write key = value"),
        ("digest =", "write key = value"),
        ("digest = alice", "write USER:PASSWORD"),
        ("tls = yes", "write true or false"),
        ("tls = true\ntls.ca = /does/not/exist", "there is no file /does/not/exist"),
        ("tls.verify = true", "not tls = true"),
        ("tls = true\ntls.verify = false\ntls.check-hostname = true", "needs tls.verify = true"),
        ("acl = everybody", "no SCHEME:ID:PERMS"),
        ("acl = creator-world-reads", "nobody does: give digest, sasl.… or tls.certificate"),
        ("acl = world:anyone:xyz", "no SCHEME:ID:PERMS"),
        ("sasl.username = alice", "sasl.mechanism is missing"),
    ],
)
def test_a_wrong_configuration_names_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        load_config(write(tmp_path, text))
    assert message in str(error.value)


def test_a_missing_file_is_the_callers_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot be read \(No such file or directory\); name a file"):
        load_config(tmp_path / "none")


def test_a_client_certificate_needs_its_key(tmp_path: Path) -> None:
    pem = write(tmp_path, "x").rename(tmp_path / "cert.pem")
    with pytest.raises(UsageError, match="go together"):
        load_config(write(tmp_path, f"tls = true\ntls.certificate = {pem}"))


@pytest.mark.parametrize("keys", ["tls.ca = {0}", "tls.certificate = {0}\ntls.key = {0}"])
def test_a_file_that_is_no_certificate_is_the_callers_error(tmp_path: Path, keys: str) -> None:
    """Before, each connection failed, and the error said that ZooKeeper does not answer."""
    pem = write(tmp_path, "x").rename(tmp_path / "x.pem")
    with pytest.raises(UsageError, match=r"TLS cannot use what it names \(.*\): correct tls.ca, tls.certificate"):
        load_config(write(tmp_path, "tls = true\n" + keys.format(pem)))


def test_a_key_that_is_locked_needs_its_password_and_nobody_is_asked(tmp_path: Path) -> None:
    pem, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    pem.write_text(CERTIFICATE, encoding="utf-8")
    key.write_text(LOCKED_KEY, encoding="utf-8")
    named = f"tls = true\ntls.certificate = {pem}\ntls.key = {key}\n"
    with pytest.raises(UsageError, match=r"correct tls.ca, tls.certificate, tls.key or tls.key.password"):
        load_config(write(tmp_path, named))
    assert load_config(write(tmp_path, named + "tls.key.password = secret\n")).tls_key_password == "secret"
