"""The core that a subscriber is opened with, and what it can be opened with at all."""

from __future__ import annotations

from oncewire.client.errors import UsageError
from oncewire.client.journal_writer import JournalWriter
from oncewire.client.subscriber_core import SubscriberCore


def check_terms(*, settled: bool, has_journal: bool, deduplicate: bool) -> None:
    """A subscriber that receives settled keeps nothing.

    Raises:
        UsageError: it is to keep something.
    """
    if settled and has_journal:
        problem = "a subscriber that receives settled cannot have a journal"
        why = "nothing it receives is kept or comes again (at-most-once)"
        raise UsageError(problem, why, "leave out the journal, or settled=True")
    if settled and deduplicate:
        problem = "a subscriber that receives settled cannot drop copies"
        why = "nothing it receives is kept (at-most-once), so it does not know what it has processed"
        raise UsageError(problem, why, "leave out deduplicate, or settled=True")


async def core_of(
    writer: JournalWriter, name: str, prefetch: int, exactly_once: bool, *, deduplicate: bool
) -> SubscriberCore:
    """A core that goes on with what the journal holds, which is at rest.

    Raises:
        JournalError: the journal cannot be read.
        UsageError: it cannot keep ids (D-3).
    """
    journal = writer.journal
    if deduplicate and not journal.keeps_ids:
        raise UsageError(
            f"the subscriber {name!r} cannot drop copies",
            f"a {type(journal).__name__} does not keep the ids of messages that are done",
            "open it with journal=PATH, or leave out deduplicate",
        )
    state, is_shared = await writer.read(lambda: journal.open_subscriber(name)), journal.is_shared
    if not deduplicate:
        return SubscriberCore(prefetch=prefetch, exactly_once=exactly_once, recovered=state, is_shared=is_shared)
    from oncewire.client.deduplicating_core import DeduplicatingCore  # here, because few subscribers need them
    from oncewire.client.message_identity import identity_of

    return DeduplicatingCore(
        identity_of, prefetch=prefetch, exactly_once=exactly_once, recovered=state, is_shared=is_shared
    )
