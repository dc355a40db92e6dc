"""What a subscriber has to do: each scenario is named by its claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from oncewire.testing.resume.judging import require
from oncewire.testing.resume.links import ToSubscriber
from oncewire.testing.resume.stage import Stage
from oncewire.wire import ACCEPTED, encode_data_message

SESSION = b"\0nets" + (8).to_bytes(6, "big")
"""Of a network tag: flags, nonce and session."""
SMALL_FRAME = 4096
MOST_STEALS = 6
BEYOND = 50
"""Deliveries behind its first credit."""


def tag_of(number: int) -> bytes:
    """The network tag of a row."""
    return SESSION + number.to_bytes(8, "big")


def row(number: int) -> str:
    """Its body."""
    return f"row {number}"


async def begun(stage: Stage) -> ToSubscriber:
    """The client's first attach."""
    link = await stage.subscriber()
    require(not link.presented, "its first attach presents deliveries")
    await link.grant()
    return link


async def processed(link: ToSubscriber, *numbers: int) -> list[int]:
    """Rows that the client gets and accepts; returns their delivery-ids."""
    ids = [await link.send(tag_of(number), row(number)) for number in numbers]
    await link.outcomes(map(tag_of, numbers))
    return ids


async def check_once(stage: Stage, numbers: Iterable[int]) -> None:
    """The application was given each of these once, in order."""
    wanted = [row(number) for number in numbers]
    await stage.program.prints(wanted[-1])
    found = [line for line in stage.program.lines if line.startswith("row ")]
    doubled = [line for line, count in Counter(found).items() if count > 1]
    require(not doubled, f"the program got {doubled} more than once")
    require(found == wanted, f"the program got {found}, and was to get {wanted}")


async def check_map(link: ToSubscriber, done: Iterable[int]) -> None:
    """S-a: the map has what it is done with, as accepted, and nothing else."""
    wanted = {tag_of(number): ACCEPTED for number in done}
    presented = await link.whole_map()
    require(presented == wanted, f"its map is {_shown(presented)}, and was to be {_shown(wanted)}")


async def resumed_settled(link: ToSubscriber, *numbers: int) -> None:
    """A-7: entries of the reply that are settled now."""
    for number in numbers:
        await link.send(tag_of(number), resume=True, settled=True)


async def lost_before_outcome(stage: Stage) -> None:
    """What it was sent and has not answered is resumed, and given to the program once."""
    link = await begun(stage)
    for number in (1, 2):
        await link.send(tag_of(number), row(number))
    link.drop()
    again = await stage.subscriber()
    presented = await again.whole_map()
    require(set(presented) <= {tag_of(1), tag_of(2)}, f"its map is {_shown(presented)}")
    await again.grant(list(presented))
    for number in (1, 2):
        if presented.get(tag_of(number)) == ACCEPTED:
            await resumed_settled(again, number)
        else:
            await again.send(tag_of(number), row(number), resume=tag_of(number) in presented)
            await again.outcomes([tag_of(number)])
    await processed(again, 3)
    await check_once(stage, (1, 2, 3))


async def lost_before_settlement(stage: Stage) -> None:
    """What it has accepted stands in its map as accepted, until it is settled."""
    link = await begun(stage)
    await processed(link, 1, 2)
    link.drop()
    again = await stage.subscriber()
    await check_map(again, (1, 2))
    await again.grant([tag_of(1), tag_of(2)])
    await resumed_settled(again, 1)
    await processed(again, 3)
    again.drop()
    await check_map(await stage.subscriber(), (2, 3))
    await check_once(stage, (1, 2, 3))


async def settled_is_forgotten(stage: Stage) -> None:
    """What the router has settled is in no map."""
    link = await begun(stage)
    first, _ = await processed(link, 1, 2)
    link.settle(first)
    await processed(link, 3)
    link.drop()
    await check_map(await stage.subscriber(), (2, 3))


async def reply_lacks_a_tag(stage: Stage) -> None:
    """A-6: an entry that the reply leaves out is settled."""
    link = await begun(stage)
    await processed(link, 1, 2)
    link.drop()
    again = await stage.subscriber()
    await again.grant([tag_of(2)])
    await processed(again, 3)
    again.drop()
    await check_map(await stage.subscriber(), (2, 3))
    await check_once(stage, (1, 2, 3))


async def done_comes_again(stage: Stage) -> None:
    """S-a: a delivery that it is done with is answered again, and not processed again."""
    link = await begun(stage)
    await processed(link, 1)
    link.drop()
    again = await stage.subscriber()
    await again.grant([tag_of(1)])
    await again.send(tag_of(1), row(1), resume=True)
    await again.outcomes([tag_of(1)])
    await processed(again, 2)
    await check_once(stage, (1, 2))


async def aborted(stage: Stage) -> None:
    """L-5: what ends aborted is no delivery; the same one comes again whole."""
    link = await begun(stage)
    await link.send(tag_of(1), row(1))
    await link.outcomes([tag_of(1)])
    payload = encode_data_message(row(2).encode())
    link.wire.begin(tag_of(2), payload[:-1])
    link.visit.flush()
    link.wire.abort()
    await processed(link, 2)
    await check_once(stage, (1, 2))


async def other_router(stage: Stage) -> None:
    """At another router it presents the same map."""
    link = await begun(stage)
    await processed(link, 1, 2)
    link.visit.router.stop()
    link.drop()
    again = await stage.subscriber()
    require(again.visit.router is not link.visit.router, "it attached at the router that was stopped")
    await check_map(again, (1, 2))


async def credit_without_settlement(stage: Stage) -> None:
    """C-3: it grants credit for what it has answered, whether that is settled or not."""
    link = await begun(stage)
    await link.send(tag_of(1), row(1))
    most = 1 + link.wire.credit + BEYOND
    for number in range(2, most + 1):
        await link.send(tag_of(number), row(number))
    await link.outcomes(map(tag_of, range(1, most + 1)))
    await check_once(stage, range(1, most + 1))


async def map_in_parts(stage: Stage) -> None:
    """C-4: an attach has no more entries than fit its frame; the others follow it, or wait for the next round."""
    link = await begun(stage)
    stage.first.frame_size = stage.second.frame_size = SMALL_FRAME
    left = list(range(1, 151))
    await processed(link, *left)
    link.drop()
    again = await stage.subscriber()
    while again.is_round:
        part = await again.whole_map()
        require(bool(part) and set(part) <= set(map(tag_of, left)), f"its part is {_shown(part)}")
        await again.grant(list(part))
        for number in [number for number in left if tag_of(number) in part]:
            await resumed_settled(again, number)
            left.remove(number)
        again.detach("amqp:link:detach-forced")
        again = await stage.subscriber()
    await check_map(again, left)
    await again.grant([tag_of(number) for number in left])
    await resumed_settled(again, *left)
    await processed(again, 151)
    again.drop()
    await check_map(await stage.subscriber(), (151,))
    await check_once(stage, range(1, 152))


async def stolen_link(stage: Stage) -> None:
    """A-8: it does not fight for the link."""
    await stage.steals(MOST_STEALS)


async def killed_and_started_again(stage: Stage) -> None:
    """Its journal has each outcome before the router."""
    link = await begun(stage)
    await processed(link, 1, 2)
    await stage.program.kill()
    await stage.program.start()
    again = await stage.subscriber()
    await check_map(again, (1, 2))
    await again.grant([tag_of(1), tag_of(2)])
    await resumed_settled(again, 1, 2)
    await processed(again, 3)
    await check_once(stage, (1, 2, 3))


def _shown(entries: Mapping[bytes, object]) -> str:
    return "{" + ", ".join(f"{tag.hex()}: {state!r}" for tag, state in entries.items()) + "}"


SCENARIOS = {
    "what has no outcome is resumed and processed once": lost_before_outcome,
    "what is done stays in the map until it is settled": lost_before_settlement,
    "what is settled is forgotten": settled_is_forgotten,
    "what the reply leaves out is settled": reply_lacks_a_tag,
    "what is done and comes again is answered, not processed": done_comes_again,
    "what ends aborted is no delivery": aborted,
    "another router gets the same map": other_router,
    "credit does not wait for settlements": credit_without_settlement,
    "a map larger than a frame is presented in parts": map_in_parts,
    "a stolen link is not fought for": stolen_link,
    "the journal has an outcome before the router": killed_and_started_again,
}
