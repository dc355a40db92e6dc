"""The filters of subscriptions over AMQP's messages, as the record core wants them (E-9)."""

from __future__ import annotations

from delivery_records.subscriber.filters import CompiledFilter, UnknownFilter
from oncewire.filters.errors import FilterError
from oncewire.filters.filter_set import compile_text
from oncewire.filters.sections import MessageSections, TooCostly


class AmqpFilters:
    """The engine of a router: see delivery_records.subscriber.filters.FilterEngine."""

    def compile(self, text: str) -> CompiledFilter:
        """The filter of a canonical text.

        Raises:
            UnknownFilter: this release cannot read it.
        """
        try:
            found = compile_text(text)
        except FilterError as error:
            raise UnknownFilter(str(error)) from None
        test = found.test
        if test is None:
            return CompiledFilter(found.no_local)

        def matches(opened: object) -> bool | None:
            assert isinstance(opened, MessageSections)
            try:
                return test(opened)
            except TooCostly:
                return None

        return CompiledFilter(found.no_local, matches, found.weight)

    def open(self, message: bytes, message_format: int) -> MessageSections:
        """What the tests of this message share."""
        return MessageSections(message, message_format)
