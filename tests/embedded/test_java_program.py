"""A small Java program is compiled from its source without a JDK, and run."""

import subprocess
from pathlib import Path

import pytest

from zkcoord.embedded.artifacts import OLD_KAFKA_VERSIONS, kafka_jars
from zkcoord.embedded.java_program import compiled, java_command
from zkcoord.errors import UsageError

pytestmark = pytest.mark.legacy

VERSION = """public final class Version {
    public static void main(String[] words) {
        System.out.println(words[0] + " " + kafka.utils.VerifiableProperties.class.getSimpleName());
    }
}
"""


def source(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "Version.java"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def own_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Classes are kept in a folder of the test's own."""
    monkeypatch.setattr("zkcoord.embedded.java_program.cache_dir", lambda: tmp_path / "cache")
    return tmp_path / "cache" / "classes"


def test_it_runs_beside_jars_and_is_compiled_once_for_each_content(tmp_path: Path, own_classes: Path) -> None:
    jars = kafka_jars(OLD_KAFKA_VERSIONS[0])
    path = source(tmp_path, VERSION)
    command = java_command(path, jars, ["hello"], heap="32m")
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout == "hello VerifiableProperties\n"
    (first,) = own_classes.iterdir()
    made = first.stat().st_mtime_ns
    assert (compiled(path, jars), first.stat().st_mtime_ns) == (first, made)
    other = compiled(source(tmp_path, VERSION.replace("words", "given")), jars)
    assert sorted(own_classes.iterdir()) == sorted([first, other])


def test_a_source_with_a_fault_is_refused_with_its_line_and_leaves_nothing(tmp_path: Path, own_classes: Path) -> None:
    with pytest.raises(UsageError, match=r"(?s)Version\.java cannot be compiled:.*at line 3.*VerifiableProperties"):
        compiled(source(tmp_path, VERSION), ())
    assert list(own_classes.iterdir()) == []
