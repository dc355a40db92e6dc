"""The formats `oncewire` and `amqp`, which are one, as Spark sees it: which class does what. Nothing is opened here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

from bridges.node.errors import BadRequest
from bridges.spark.journal_options import JournalOptions, journal_options
from bridges.spark.option_names import reads_journal
from bridges.spark.options import SourceOptions, source_options
from bridges.spark.schema import JOURNAL_COLUMN, columns, schema_ddl
from bridges.spark.spark_calls import called_by_spark
from bridges.spark.tables import check_table, noted_with, options_with

if TYPE_CHECKING:
    from bridges.spark.journal_source import JournalBatchReader, JournalStreamReader
    from bridges.spark.sink import AmqpBatchWriter, AmqpStreamWriter
    from bridges.spark.source import AmqpBatchReader, AmqpStreamReader


@called_by_spark
class AmqpDataSource(DataSource):  # type: ignore[misc]  # pyspark has no types for us
    """See the module. Options are in options.py, columns in schema.py."""

    @classmethod
    def name(cls) -> str:
        """What users write in `format()`."""
        return "amqp"

    def schema(self) -> Any:
        """Columns of what is read, by the options `includeHeaders`, `includeMetadata` and `journal`."""
        check_table(self.options)
        found = _columns(_options(self.options, is_stream=False))
        return noted_with(found, self.options) or schema_ddl(found)

    def streamReader(self, schema: Any) -> AmqpStreamReader | JournalStreamReader:  # noqa: N802  # Spark's name
        """For `readStream`."""
        from bridges.spark.journal_source import JournalStreamReader
        from bridges.spark.source import AmqpStreamReader

        options = _options(options_with(schema, self.options), is_stream=True)
        _check_schema(schema, _columns(options))
        return JournalStreamReader(options) if isinstance(options, JournalOptions) else AmqpStreamReader(options)

    def reader(self, schema: Any) -> AmqpBatchReader | JournalBatchReader:
        """For `read`."""
        from bridges.spark.journal_source import JournalBatchReader
        from bridges.spark.source import AmqpBatchReader

        options = _options(options_with(schema, self.options), is_stream=False)
        _check_schema(schema, _columns(options))
        return JournalBatchReader(options) if isinstance(options, JournalOptions) else AmqpBatchReader(options)

    def streamWriter(self, schema: Any, overwrite: bool) -> AmqpStreamWriter:  # noqa: N802  # Spark's name
        """For `writeStream`."""
        from bridges.spark.sink import AmqpStreamWriter

        if overwrite:
            raise BadRequest(
                "outputMode('complete') cannot be used",
                "what was published cannot be replaced",
                "use outputMode('update').foreachBatch(publish_batches(...)) to publish the rows that changed, "
                "or outputMode('append') with a watermark",
            )
        return AmqpStreamWriter(options_with(schema, self.options), schema)

    def writer(self, schema: Any, overwrite: bool) -> AmqpBatchWriter:
        """For `write`."""
        from bridges.spark.sink import AmqpBatchWriter

        return AmqpBatchWriter(options_with(schema, self.options), schema, overwrite)


@called_by_spark
class OncewireDataSource(AmqpDataSource):
    """The same format by the name that it is known for."""

    @classmethod
    def name(cls) -> str:
        """What users write in `format()`."""
        return "oncewire"


def _options(given: Mapping[str, str], *, is_stream: bool) -> SourceOptions | JournalOptions:
    if reads_journal(given):
        return journal_options(given, is_stream=is_stream)
    return source_options(given, is_stream=is_stream)


def _columns(options: SourceOptions | JournalOptions) -> tuple[tuple[str, str], ...]:
    found = columns(include_headers=options.include_headers, include_metadata=options.include_metadata)
    return (*found, JOURNAL_COLUMN) if isinstance(options, JournalOptions) else found


def _check_schema(given: Any, wanted: tuple[tuple[str, str], ...]) -> None:
    """Spark passes on a schema that a user gave, whatever it is."""
    names = [name for name, _ in wanted]
    if given.fieldNames() != names:
        raise BadRequest(
            "the given schema cannot be used",
            f"the columns are {', '.join(names)}",
            "leave out .schema(), and select columns afterwards",
        )
