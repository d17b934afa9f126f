"""The entry to this package. Imports OpenTelemetry only if its standard environment variables ask for traces."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from zkcoord.logs import emit

if TYPE_CHECKING:
    from zkcoord.serving.role import CoordinatorRole
    from zkcoord.shell.driver import Driver
    from zkcoord.tracing.traces import HandOverTraces

EXPORTERS, PROTOCOLS = "OTEL_TRACES_EXPORTER", ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
OTLP, NONE = "otlp", "none"
OTLP_BY_PROTOCOL = {"": "otlp_proto_http", "http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
PLUGINS = "opentelemetry_traces_exporter"  # the entry point group in which packages name their exporters


def trace_handovers(driver: Driver, role: CoordinatorRole) -> None:
    """Trace this coordinator's hand-overs if the environment asks for traces. Call it once, before the loop runs."""
    traces = handover_traces()
    if traces is not None:
        traces.follow(driver, role)


def handover_traces(environ: Mapping[str, str] = os.environ) -> HandOverTraces | None:
    """Return the object that makes traces of a coordinator's hand-overs; None if the environment asks for no traces.

    Also return None, with the event `tracing_off`, if the exporters in the environment cannot be made. The coordinator
    then serves without traces, which is better than not to serve.
    """
    names = exporters_asked_for(environ)
    if not names:
        return None
    try:
        from zkcoord.tracing.traces import HandOverTraces

        return HandOverTraces([_exporter(name, environ) for name in names])
    except ImportError as error:
        why = f"{error}: pip install 'zkcoord[otel]', or the package of the exporter that is asked for"
    except Exception as error:  # for wrong settings exporters raise different exceptions
        why = f"{error}: check the variables OTEL_…"
    emit("tracing_off", why=why, level="warning")
    return None


def exporters_asked_for(environ: Mapping[str, str]) -> Sequence[str]:
    """Return the names of the exporters that OpenTelemetry's environment variables ask for.

    >>> exporters_asked_for({}), exporters_asked_for({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"})
    ([], ['otlp'])
    >>> exporters_asked_for({"OTEL_TRACES_EXPORTER": "otlp,console"}), exporters_asked_for({EXPORTERS: "none"})
    (['otlp', 'console'], [])
    """
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    told = [name.strip() for name in environ.get(EXPORTERS, "").split(",") if name.strip()]
    if not told and any(environ.get(name) for name in ENDPOINTS):
        told = [OTLP]
    return [name for name in told if name != NONE]


def _exporter(name: str, environ: Mapping[str, str]) -> Any:
    """Make the exporter of this name. It reads its further settings from the environment itself."""
    if name == OTLP:
        protocol = next((environ[each].strip() for each in PROTOCOLS if environ.get(each)), "")
        name = OTLP_BY_PROTOCOL.get(protocol, f"otlp_{protocol}")
    found = list(entry_points(group=PLUGINS, name=name))
    if not found:
        raise ImportError(f"no exporter {name} of traces is installed")
    return found[0].load()()
