"""Fetches jars through Ivy, which PySpark ships: the only place that goes to the network.

It names no repository: Ivy's own defaults apply, or the ivysettings.xml that ZKCOORD_IVY_SETTINGS names (mirrors).
"""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO
from xml.sax.saxutils import quoteattr

from zkcoord.embedded.child import Child
from zkcoord.embedded.java import find_java, pyspark_jars
from zkcoord.errors import UnavailableError, UsageError

SETTINGS_VARIABLE = "ZKCOORD_IVY_SETTINGS"
MAIN = "org.apache.ivy.Main"
MEGABYTE = 1_000_000
POLL_S = 0.2
TERMINAL_EVERY_S = 0.5
LOG_EVERY_S = 10.0
CONNECT_TIMEOUT_MS = 20_000  # Java's default is endless: it would wait for ever where a firewall drops packets
READ_TIMEOUT_MS = 60_000
ERROR_LINES_MAX = 3


class Progress:
    """Progress of a download. On a terminal that shows no other download one line is rewritten; otherwise a new line is
    printed every ten seconds."""

    def __init__(self, title: str, bytes_total: int | None, out: TextIO, *, rewrites: bool = True) -> None:
        self._title = title
        self._total = "" if bytes_total is None else f" of {bytes_total // MEGABYTE} MB"
        self._out = out
        self._terminal = rewrites and out.isatty()
        self._start_s = time.monotonic()
        self._next_s = self._start_s

    def show(self, bytes_done: int) -> None:
        """Print the progress, if it is time to."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + (TERMINAL_EVERY_S if self._terminal else LOG_EVERY_S)
        doing = "" if bytes_done else " (looking up what it needs)"  # takes half of the time
        self._write(f"fetching {self._title}: {bytes_done // MEGABYTE} MB{self._total}{doing}", last=False)

    def end(self, bytes_done: int) -> None:
        """Print that it is done."""
        seconds = time.monotonic() - self._start_s
        self._write(f"fetched {self._title}: {bytes_done // MEGABYTE} MB in {seconds:.0f} s", last=True)

    def _write(self, text: str, *, last: bool) -> None:
        self._out.write(f"\r{text:<70}" + ("\n" if last else "") if self._terminal else f"{text}\n")
        self._out.flush()


def module_file(name: str, dependencies: Sequence[str], excludes: Sequence[str]) -> str:
    """Return an ivy.xml for `dependencies` (org:name:revision) without the modules in `excludes` (org or org:name)."""
    wanted = (dependency.split(":") for dependency in dependencies)
    unwanted = (exclude.partition(":") for exclude in excludes)
    rows = [
        f'<dependency org={quoteattr(org)} name={quoteattr(module)} rev={quoteattr(revision)} conf="default"/>'
        for org, module, revision in wanted
    ]
    rows += [
        f"<exclude org={quoteattr(org)}" + (f" module={quoteattr(module)}/>" if module else "/>")
        for org, _, module in unwanted
    ]
    return (
        f'<ivy-module version="2.0"><info organisation="zkcoord" module={quoteattr(name)}/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(rows)}</dependencies></ivy-module>\n"
    )


def fetch(
    title: str,
    dependencies: Sequence[str],
    excludes: Sequence[str],
    bytes_total: int | None,
    work: Path,
    keep: Path,
    *,
    rewrites: bool = True,
) -> Path:
    """Fetch the jars of `dependencies` and their own dependencies. Return the folder with the jars, below the empty
    folder `work`.

    UnavailableError if Ivy fails. The error names the bundle, Ivy's messages, and `keep`, the folder into which the
    files can be put by hand.
    """
    module, out, cache = work / "ivy.xml", work / "out", work / "cache"
    module.write_text(module_file(title.replace(" ", "-"), dependencies, excludes), encoding="utf-8")
    ivy = Child("Ivy", _command(module, out, cache), work / "ivy.log")
    progress = Progress(title, bytes_total, sys.stderr, rewrites=rewrites)
    ivy.start()
    try:
        while ivy.running:
            progress.show(_size(cache))
            time.sleep(POLL_S)
    finally:
        ivy.kill()
    if ivy.exit_code != 0 or not out.is_dir():
        raise UnavailableError(_failure(title, dependencies, ivy.log, keep))
    progress.end(_size(out))
    return out


def _command(module: Path, out: Path, cache: Path) -> tuple[str, ...]:
    java = find_java()
    settings = os.environ.get(SETTINGS_VARIABLE)
    if settings and "://" not in settings and not Path(settings).is_file():
        raise UsageError(f"{SETTINGS_VARIABLE} names {settings}, which is no file")
    return (
        str(java.executable),
        f"-Divy.default.ivy.user.dir={cache.parent / 'user'}",
        f"-Dsun.net.client.defaultConnectTimeout={CONNECT_TIMEOUT_MS}",
        f"-Dsun.net.client.defaultReadTimeout={READ_TIMEOUT_MS}",
        *java.trust_options,
        "-cp",
        f"{pyspark_jars()}/*",
        MAIN,
        *(("-settings", settings) if settings else ()),
        "-cache",
        str(cache),
        "-ivy",
        str(module),
        "-confs",
        "default",
        "-retrieve",
        f"{out}/[artifact]-[revision](-[classifier]).[ext]",
    )


def _size(folder: Path) -> int:
    """Return the total size of the jars below `folder` in bytes, partly fetched jars included; files may come and go
    meanwhile."""
    total = 0
    for path in folder.rglob("*.jar*"):
        try:
            total += path.stat().st_size
        except OSError:
            continue
    return total


def _failure(title: str, dependencies: Sequence[str], log: Path, keep: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    errors = lines[lines.index(":::: ERRORS") + 1 :] if ":::: ERRORS" in lines else lines[-ERROR_LINES_MAX:]
    said = "\n  ".join(errors[:ERROR_LINES_MAX])  # the first has the cause, the others repeat it for other files
    settings = os.environ.get(SETTINGS_VARIABLE)
    source = f"from the repositories of {settings}" if settings else "from Ivy's default repositories"
    return (
        f"{title} ({', '.join(dependencies)}) could not be fetched {source}. Ivy said:\n  {said}\n"
        "Check the network (behind a proxy: JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=… -Dhttps.proxyPort=…'), "
        f"or let {SETTINGS_VARIABLE} name an ivysettings.xml with a mirror, "
        f"or copy {keep} from a machine that has it."
    )
