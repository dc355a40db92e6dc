"""Why a filter is refused."""

from __future__ import annotations


class FilterError(ValueError):
    """A filter that cannot be applied.

    Attributes:
        condition: the AMQP error condition for the client: `amqp:invalid-field` where the filter is wrong,
            `amqp:not-implemented` where it is not offered.

    The text says what is wrong and what to do.
    """

    def __init__(self, description: str, condition: str = "amqp:invalid-field") -> None:
        super().__init__(description)
        self.condition = condition
