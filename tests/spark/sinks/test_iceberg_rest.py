"""An Iceberg table whose catalog is asked by HTTP: commits that are refused, and answers that are lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog

from tests.spark.sinks.frames import A, B, Frame, batch, once, records
from tests.spark.sinks.rest_catalog import RestServer
from tests.spark.sinks.test_iceberg import NAME, PA, PB, Warehouse

pytestmark = pytest.mark.spark


class Served(Warehouse):
    """Each program asks by HTTP, once there is an endpoint."""

    endpoint = ""

    def catalog(self) -> Any:
        if not self.endpoint:
            return super().catalog()
        made = RestCatalog("tests", uri=self.endpoint)
        self._made.append(made)  # type: ignore[arg-type]
        return made


@pytest.fixture
def house(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    yield made
    made.close()


@pytest.fixture
def server(house: Served) -> Iterator[RestServer]:
    with RestServer(house.catalog(), NAME).running() as made:
        assert isinstance(made, RestServer)
        house.endpoint = made.endpoint
        yield made


@pytest.mark.parametrize("others", [False, True], ids=["", "others write meanwhile"])
@pytest.mark.parametrize("kind", ["lost", "busy"])
def test_f165_a_commit_whose_answer_a_rest_catalog_loses_or_refuses_is_made_once(
    house: Served, server: RestServer, kind: str, others: bool
) -> None:
    house.write(B)
    then = once(house.others) if others else lambda: None
    fault = server.add(kind, "POST", server.path, then=then)
    assert house.write(A) == 4
    assert fault.met == [server.path]
    assert [row for row in house.rows() if row[0] == "clicks"] == records(A, B)
    assert (house.write(A, B), house.ends()) == (0, {PA: 14, PB: 8})


def test_f163_of_two_that_write_to_a_rest_catalogs_table_at_once_each_writes_what_is_missing(
    house: Served, server: RestServer
) -> None:
    frame = Frame.of(A, B, on_write=once(lambda: house.write(B, A._replace(end=12))))
    assert house.write(frame=frame, to=batch(A, B)) == 2
    assert (house.rows(), house.ends()) == (records(A, B), {PA: 14, PB: 8})
    assert [method for method, path in server.seen if path == server.path].count("POST") == 3
