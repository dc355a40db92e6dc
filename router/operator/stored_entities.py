"""Queues and journals as entities of management: the router reads them in an edge's store, where it has one."""

from __future__ import annotations

from router.operator.arguments import ManagementError
from topology.inspector.queues import NO_STORE, QueueReader
from topology.inspector.rows_core import Row
from topology.inspector.schema.model import EntityType
from topology.inspector.schema.stored import JOURNAL, QUEUE


class StoredEntities:
    """The rows of the store.

    Args:
        reader: of the store; None = the router has none.
    """

    def __init__(self, reader: QueueReader | None) -> None:
        self._reader = reader

    def offers(self, entity: EntityType) -> bool:
        """Whether entities of this type are read here, if they are of the store at all."""
        return not entity.is_stored or self._reader is not None

    async def rows(self, entity: EntityType) -> list[Row]:
        """All entities of a type, sorted by name.

        Raises:
            ManagementError: the router has no store, or it cannot be read.
        """
        reader = self._reader
        if reader is None:
            raise ManagementError(*NO_STORE)
        read = {QUEUE.name: reader.queues, JOURNAL.name: reader.journals}[entity.name]
        try:
            return await read()
        except Exception as error:
            refusal = reader.refusal_of(error)
            if refusal is None:
                raise
            raise ManagementError(*refusal) from error
