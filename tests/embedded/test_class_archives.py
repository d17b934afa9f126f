"""Archives of the servers' classes: made once, and found by whoever starts such a server."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from zkcoord.embedded import EmbeddedZooKeeper
from zkcoord.embedded.class_archives import make_archive
from zkcoord.embedded.java import Java
from zkcoord.errors import UnavailableError

JAVA = Java(executable=Path("/no/java"), home=Path("/no"), major=17, bundled=False)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test's own."""
    monkeypatch.setenv("ZKCOORD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def server(options: Sequence[str] = ()) -> EmbeddedZooKeeper:
    """One that does not run."""
    return EmbeddedZooKeeper(fsync=False, jvm_options=options)


def mapped(pid: int | None) -> set[str]:
    """The archives that this process has in its memory."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {line.rpartition(" ")[2] for line in lines if line.endswith(".jsa")}


def test_an_archive_is_named_by_java_main_class_and_jars(cache: Path, tmp_path: Path) -> None:
    jar, folder = tmp_path / "a.jar", tmp_path / "jars"
    jar.write_bytes(b"1")
    folder.mkdir()
    first = JAVA.archive("Main", [jar, f"{folder}/*"])
    assert first.parent == cache / "archives"
    assert JAVA.archive("Main", [jar, f"{folder}/*"]) == first
    assert len({first, JAVA.archive("Other", [jar, f"{folder}/*"]), JAVA.archive("Main", [jar])}) == 3
    for changed in (jar, folder):
        os.utime(changed, ns=(1, 1))
        assert JAVA.archive("Main", [jar, f"{folder}/*"]) != first
        first = JAVA.archive("Main", [jar, f"{folder}/*"])


def test_a_command_names_the_archive_where_there_is_one(cache: Path) -> None:
    assert not [word for word in JAVA.command("Main", ["x.jar"], heap="1m") if "Archive" in word]
    archive = JAVA.archive("Main", ["x.jar"])
    archive.parent.mkdir(parents=True)
    archive.touch()
    command = JAVA.command("Main", ["x.jar"], heap="1m", options=["-XX:SharedArchiveFile=mine"])
    assert [word for word in command if "Archive" in word] == [
        f"-XX:SharedArchiveFile={archive}",
        "-XX:SharedArchiveFile=mine",
    ]


@pytest.mark.zookeeper
def test_a_server_uses_what_was_made_for_it(cache: Path) -> None:
    make_archive(server)
    (archive,) = (cache / "archives").iterdir()
    with server() as running:
        assert str(archive) in mapped(running.pid)
    made_ns = archive.stat().st_mtime_ns
    make_archive(server)
    assert archive.stat().st_mtime_ns == made_ns, "it was there"


@pytest.mark.zookeeper
def test_an_archive_that_no_server_starts_with_is_not_kept(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # there Java tells of its crash

    def breaking(options: Sequence[str]) -> EmbeddedZooKeeper:
        for draft in (cache / "archives").glob("*/draft.jsa"):
            draft.chmod(0o644)
            draft.write_bytes(draft.read_bytes()[:4096])
        return server(options)

    with pytest.raises(UnavailableError, match="instead of serving"):
        make_archive(breaking)
    assert not list((cache / "archives").iterdir())
