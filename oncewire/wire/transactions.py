"""What names a transaction in frames (AMQP 1.0 part 4), and how it is refused: no end here offers a coordinator.

A coordinator's attach is the owner's to refuse. Work under a transaction is refused here: to do it outside of the
transaction would publish, or settle, what the client may still roll back.
"""

from __future__ import annotations

from oncewire.wire.performatives import DeliveryState, Fields
from oncewire.wire.types import Described, Symbol, ULong

# 4.5.8 transaction-error: nothing was ever declared, so no transaction-id is known.
UNKNOWN_TRANSACTION = Symbol("amqp:transaction:unknown-id")
NO_TRANSACTIONS = "transactions are not offered, so no transaction has this id"

# 4.5: the state of a transfer or disposition that is part of a transaction.
_TRANSACTIONAL_STATE = (ULong(0x34), Symbol("amqp:transactional-state:list"))
# 4.4.3: the link state property of a receiver that acquires under a transaction.
_TXN_ID = Symbol("txn-id")


def is_transactional(state: DeliveryState | None) -> bool:
    """Whether a delivery state names a transaction (4.4.1 posting, 4.4.2 retirement)."""
    return isinstance(state, Described) and state.descriptor in _TRANSACTIONAL_STATE


def acquires(properties: Fields | None) -> bool:
    """Whether the properties of a flow name a transaction (4.4.3 acquisition)."""
    return properties is not None and _TXN_ID in properties
