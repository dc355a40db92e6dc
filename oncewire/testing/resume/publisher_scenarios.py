"""What a publisher has to do: each scenario is named by its claim."""

from __future__ import annotations

from collections.abc import Sequence

from oncewire.testing.resume.judging import require
from oncewire.testing.resume.links import FromPublisher, body_of
from oncewire.testing.resume.stage import Stage
from oncewire.wire import DeliveryReceived, UnsettledMap, decode_message
from oncewire.wire.performatives import OUTCOMES
from oncewire.wire.vocabulary import IN_DOUBT

SMALL_FRAME = 4096
MOST_STEALS = 6


async def begun(stage: Stage, credit: int) -> tuple[FromPublisher, list[DeliveryReceived]]:
    """The client's first attach, and so many deliveries of it."""
    link = await stage.publisher()
    require(not link.presented, "its first attach presents deliveries")
    await link.grant(credit)
    sent = await link.transfers(credit)
    require(len({delivery.tag for delivery in sent}) == credit, "it used a delivery-tag twice")
    require(not any(delivery.settled or delivery.resume for delivery in sent), "it sent settled, or with resume")
    return link, sent


def open_in(presented: UnsettledMap) -> list[bytes]:
    """The tags of a map that have no outcome."""
    return [tag for tag, state in presented.items() if not isinstance(state, OUTCOMES)]


def check_map(link: FromPublisher, sent: Sequence[DeliveryReceived]) -> None:
    """P-1: the map has what was sent and has no outcome, in its order."""
    tags = [delivery.tag for delivery in sent]
    unfinished = open_in(link.presented)
    require(unfinished == tags, f"its map has {_names(unfinished)} without an outcome, and was to have {_names(tags)}")


async def sent_again(link: FromPublisher, sent: Sequence[DeliveryReceived], more: int = 0) -> list[DeliveryReceived]:
    """P-a: reply with an empty map; the same deliveries come first, in order, as new transfers. Then `more` others."""
    await link.grant(len(sent) + more)
    again = await link.transfers(len(sent) + more)
    tags = [delivery.tag for delivery in sent]
    found = [delivery.tag for delivery in again[: len(sent)]]
    require(found == tags, f"it sent {_names(found)} again, and was to send {_names(tags)}")
    require(not any(delivery.resume for delivery in again), "it sent with resume=true what the reply does not name")
    bodies = [body_of(delivery.payload) for delivery in sent]
    require(
        [body_of(each.payload) for each in again[: len(sent)]] == bodies, "it sent other bodies under the same tags"
    )
    require(tags == [] or not set(tags) & {each.tag for each in again[len(sent) :]}, "it used a delivery-tag twice")
    return again


async def lost_before_outcome(stage: Stage) -> None:
    """What was sent and has no outcome is presented, and sent again with the same tags."""
    link, sent = await begun(stage, 3)
    link.drop()
    again = await stage.publisher()
    check_map(again, sent)
    await sent_again(again, sent, more=2)


async def lost_before_settlement(stage: Stage) -> None:
    """An outcome that the program has is in no map as open, and its delivery is not sent again."""
    link, sent = await begun(stage, 3)
    link.accept(sent[:1])
    await stage.program.prints(f"{body_of(sent[0].payload).split()[-1]} accepted")
    link.drop()
    again = await stage.publisher()
    check_map(again, sent[1:])
    await sent_again(again, sent[1:], more=1)


async def other_router(stage: Stage) -> None:
    """At a router that knows nothing it does the same."""
    link, sent = await begun(stage, 3)
    link.visit.router.stop()
    link.drop()
    again = await stage.publisher()
    require(again.visit.router is not link.visit.router, "it attached at the router that was stopped")
    check_map(again, sent)
    await sent_again(again, sent)


async def lost_again_and_again(stage: Stage) -> None:
    """Lost before it has sent again, it presents the same map once more."""
    link, sent = await begun(stage, 3)
    for _ in range(3):
        link.drop()
        link = await stage.publisher()
        check_map(link, sent)
    await sent_again(link, sent)


async def settles_after_recording(stage: Stage) -> None:
    """It settles each outcome."""
    link, sent = await begun(stage, 3)
    link.accept(sent)
    await link.settlements(sent)


async def more_than_its_credit(stage: Stage) -> None:
    """It sends as many as it has credit for."""
    link, sent = await begun(stage, 2)
    link.accept(sent[:1])
    await link.settlements(sent[:1])
    require(not link.visit.has(link.wire, DeliveryReceived), "it sent beyond its credit")


async def refused(stage: Stage, condition: str) -> None:
    """The router cannot say what became of what was sent. It must not come as if it were new."""
    link, sent = await begun(stage, 3)
    link.drop()
    again = await stage.publisher()
    check_map(again, sent)
    again.refuse(condition)
    if (following := await stage.next_attach()) is None:
        return  # it reports the failure, and ends
    fresh = stage.as_publisher(*following)
    check_map(fresh, [])
    await fresh.grant(3)
    bodies = {body_of(delivery.payload) for delivery in sent}
    for delivery in await fresh.transfers(3):
        is_marked = IN_DOUBT in (decode_message(delivery.payload).annotations or {})
        require(is_marked or body_of(delivery.payload) not in bodies, "it sent as new what may have been delivered")


async def session_expired(stage: Stage) -> None:
    """A-5: unknown to the application; sent again at most with x-opt-topic-in-doubt."""
    await refused(stage, "oncewire:session-expired")


async def unsettled_unknown(stage: Stage) -> None:
    """A-3c: the same."""
    await refused(stage, "oncewire:unsettled-unknown")


async def stolen_link(stage: Stage) -> None:
    """A-8: it does not fight for the link."""
    await stage.steals(MOST_STEALS)


async def map_fits_a_frame(stage: Stage) -> None:
    """C-4: no more is open than the attach of the next router can present."""
    stage.first.frame_size = stage.second.frame_size = SMALL_FRAME
    link = await stage.publisher()
    await link.grant(2 * link.bound)
    sent = await link.transfers(link.bound)
    link.accept(sent[:5])
    await link.settlements(sent[:5])
    more = await link.transfers(5)
    require(
        not link.visit.has(link.wire, DeliveryReceived), f"more than {link.bound} deliveries are without an outcome"
    )
    link.drop()
    again = await stage.publisher()
    check_map(again, [*sent[5:], *more])


async def killed_and_started_again(stage: Stage) -> None:
    """Its journal has each message before the network has it."""
    _, sent = await begun(stage, 3)
    await stage.program.kill()
    await stage.program.start()
    again = await stage.publisher()
    presented = list(again.presented)
    tags = [delivery.tag for delivery in sent]
    require(presented[:3] == tags, f"its map has {_names(presented)}, and {_names(tags)} were sent")
    await again.grant(len(presented) + 2)
    found = await again.transfers(len(presented) + 2)
    require([each.tag for each in found][: len(presented)] == presented, "it did not send its map again, in order")
    bodies = [body_of(each.payload) for each in found]
    require(bodies[:3] == [body_of(each.payload) for each in sent], "it sent other bodies under the same tags")
    require(len(set(bodies)) == len(bodies), "it published a row twice")


async def killed_before_settlement(stage: Stage) -> None:
    """An outcome that the program has is in its journal."""
    link, sent = await begun(stage, 3)
    link.accept(sent[:1])
    await stage.program.prints(f"{body_of(sent[0].payload).split()[-1]} accepted")
    await stage.program.kill()
    await stage.program.start()
    again = await stage.publisher()
    require(sent[0].tag not in open_in(again.presented), "its map has what the program has printed as accepted")


def _names(tags: Sequence[bytes]) -> str:
    return "[" + ", ".join(tag.hex() for tag in tags) + "]"


SCENARIOS = {
    "what has no outcome is presented and sent again, with the same tags": lost_before_outcome,
    "what has an outcome is settled and not sent again": lost_before_settlement,
    "another router gets the same map": other_router,
    "a map that was not sent again stays": lost_again_and_again,
    "each outcome is settled": settles_after_recording,
    "credit is kept": more_than_its_credit,
    "an expired session is not sent again as new": session_expired,
    "a refusal with unsettled-unknown is not answered with new copies": unsettled_unknown,
    "a stolen link is not fought for": stolen_link,
    "no more is open than a map that fits a frame": map_fits_a_frame,
    "the journal has a message before the network": killed_and_started_again,
    "the journal has an outcome before the program": killed_before_settlement,
}
