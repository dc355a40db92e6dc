"""The format `amqp` as Spark sees it: which class does what. Nothing is opened here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

from bridges.node.errors import BadRequest
from bridges.spark.options import source_options
from bridges.spark.schema import arrow_schema, schema_ddl

if TYPE_CHECKING:
    from bridges.spark.sink import AmqpBatchWriter, AmqpStreamWriter
    from bridges.spark.source import AmqpBatchReader, AmqpStreamReader


class AmqpDataSource(DataSource):  # type: ignore[misc]  # pyspark has no types for us
    """See the module. Options are in options.py, columns in schema.py."""

    @classmethod
    def name(cls) -> str:
        """What users write in `format()`."""
        return "amqp"

    def schema(self) -> str:
        """Columns of what is read, by the options `includeHeaders` and `includeMetadata`."""
        options = source_options(self.options, is_stream=False)
        return schema_ddl(include_headers=options.include_headers, include_metadata=options.include_metadata)

    def streamReader(self, schema: Any) -> AmqpStreamReader:  # noqa: N802  # Spark's name
        """For `readStream`."""
        from bridges.spark.source import AmqpStreamReader

        options = source_options(self.options)
        _check_schema(schema, options.include_headers, options.include_metadata)
        return AmqpStreamReader(options)

    def reader(self, schema: Any) -> AmqpBatchReader:
        """For `read`."""
        from bridges.spark.source import AmqpBatchReader

        options = source_options(self.options, is_stream=False)
        _check_schema(schema, options.include_headers, options.include_metadata)
        return AmqpBatchReader(options)

    def streamWriter(self, schema: Any, overwrite: bool) -> AmqpStreamWriter:  # noqa: N802  # Spark's name
        """For `writeStream`."""
        from bridges.spark.sink import AmqpStreamWriter

        if overwrite:
            raise BadRequest("the output mode cannot be used", "a topic cannot be replaced", "use append or update")
        return AmqpStreamWriter(self.options, schema)

    def writer(self, schema: Any, overwrite: bool) -> AmqpBatchWriter:
        """For `write`."""
        from bridges.spark.sink import AmqpBatchWriter

        return AmqpBatchWriter(self.options, schema, overwrite)


def _check_schema(given: Any, include_headers: bool, include_metadata: bool) -> None:
    """Spark passes on a schema that a user gave, whatever it is."""
    wanted = arrow_schema(include_headers=include_headers, include_metadata=include_metadata).names
    if given.fieldNames() != wanted:
        raise BadRequest(
            "the given schema cannot be used",
            f"the columns are {', '.join(wanted)}",
            "leave out .schema(), and select columns afterwards",
        )
