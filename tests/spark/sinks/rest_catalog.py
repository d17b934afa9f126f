"""A catalog of Iceberg that is asked by HTTP: pyiceberg's own of SQLite, with pyiceberg's own forms of questions and
answers, and the faults of a store."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from pyiceberg.catalog.rest import ConfigResponse, TableResponse
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableRequest

from tests.spark.sinks.faulty_store import Answer, FaultyStore


class RestServer(FaultyStore):
    """One table of the catalog: it can be loaded, and committed to."""

    def __init__(self, catalog: SqlCatalog, table: str) -> None:
        super().__init__(0)
        self._catalog, self._table = catalog, table
        self.path = f"/v1/namespaces/{table.replace('.', '/tables/')}"

    def _ask(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        if path.startswith("/v1/config"):
            return _answer(ConfigResponse())
        assert path.startswith(self.path), path
        table = self._catalog.load_table(self._table)
        if method == "GET":
            return _answer(TableResponse(metadata=table.metadata, **{"metadata-location": table.metadata_location}))
        asked = CommitTableRequest.model_validate_json(body)
        try:
            return _answer(self._catalog.commit_table(table, asked.requirements, asked.updates))
        except CommitFailedException as error:
            told = {"message": str(error), "type": "CommitFailedException", "code": int(HTTPStatus.CONFLICT)}
            return _answer(Refusal(error=told), HTTPStatus.CONFLICT)


class Refusal(BaseModel):
    """As the protocol has it."""

    error: dict[str, Any]


def _answer(found: BaseModel, status: HTTPStatus = HTTPStatus.OK) -> Answer:
    return status, [("Content-Type", "application/json")], found.model_dump_json(by_alias=True).encode()
