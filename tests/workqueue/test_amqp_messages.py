"""What a message that is pushed over AMQP becomes."""

from __future__ import annotations

from hypothesis import given, settings

from bridges.workqueue.amqp_messages import item_of
from oncewire.wire import BodyKind, Message, encode_message
from oncewire.wire.json_values import body_octets
from tests.support.amqp_values import VALUES, map_of


@settings(deadline=None)
@given(VALUES)
def test_every_amqp_value_can_be_pushed_also_as_a_key(value: object) -> None:
    for body in (value, map_of([(value, 1)]), map_of([(1, value), ("1", value), (True, value)])):
        assert item_of(encode_message(Message(body, BodyKind.VALUE))).payload == body_octets(body)
