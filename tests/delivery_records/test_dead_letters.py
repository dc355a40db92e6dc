"""What subscriptions fail goes to a dead-letter topic before its publisher is notified (rule I-3e)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from delivery_records.diagnostics.lookup import find
from delivery_records.diagnostics.waits import Holder, Reason, owing, waiting
from delivery_records.model import effects
from delivery_records.model.inputs import PoliciesChanged, Share, SubscriberDisposition, UnsettledMap
from delivery_records.model.letter import Letter
from delivery_records.model.limits import LETTER_ERROR_CHARS, LETTER_NOTE_S, Limits, TopicPolicy
from delivery_records.model.message_format import MessageFormat
from delivery_records.model.outcomes import Decision, DeliveryOutcome
from delivery_records.model.tags import is_letter_tag, network_tag
from delivery_records.model.trace import Choice
from delivery_records.model.view import SubscriptionMode
from tests.delivery_records.harness import NONCE, Net
from tests.delivery_records.large_parts import LIMITS as LARGE
from tests.delivery_records.large_parts import answer, send_large, take_all
from tests.delivery_records.links import PublisherLink, SubscriberLink
from tests.delivery_records.test_outcomes import session_of

DEAD = "dead"
POLICY = TopicPolicy(dead_letter=DEAD, max_attempts=2, retry_first_s=1.0)
LIMITS = Limits(policy=POLICY)
REJECTED, FAILED = DeliveryOutcome.REJECTED, DeliveryOutcome.MODIFIED_FAILED


def described(message: bytes, letter: Letter) -> bytes:
    """A letter's body for tests: all that its annotations say."""
    parts = letter.topic, letter.subscription, letter.reason, letter.attempts, letter.error, letter.count
    return b"|".join([message, *(str(part).encode() for part in parts)])


def bodies(subscriber: SubscriberLink) -> list[bytes]:
    return [delivery.message for delivery in subscriber.all(effects.Deliver) if delivery.message]


def dead_letters(
    net: Net, router: int = 0, name: str = "d", *, unsettled: UnsettledMap | None = None, map_bound: int = 0
) -> SubscriberLink:
    return net.subscriber(net.nodes[router], name, topic=DEAD, unsettled=unsettled, map_bound=map_bound)


@pytest.mark.parametrize("routers", [1, 2])
@pytest.mark.parametrize("outcome", [REJECTED, DeliveryOutcome.UNDELIVERABLE])
def test_a_publisher_is_reported_when_the_letter_of_its_message_is_done(routers: int, outcome: DeliveryOutcome) -> None:
    net = Net(routers, limits=LIMITS, message_format=MessageFormat(make_letter=described))
    subscriber, letters, publisher = net.subscriber(net.nodes[0]), dead_letters(net, -1), net.publisher(net.nodes[0])
    sent = publisher.send(b"1")
    subscriber.answer(outcome, b"1")
    assert publisher.outcomes == []
    assert bodies(letters) == [b"1|orders|s/link|" + outcome.value.encode() + b"|1||1"]
    letters.accept(b"1")
    assert publisher.outcomes == [(sent, DeliveryOutcome.ACCEPTED)]
    publisher.settle(b"1")
    assert letters.settled == [b"1"]
    assert net.nodes[0].count(Decision.DEAD_LETTER_DONE) == 1


def test_a_large_message_has_no_letter_and_its_publisher_is_reported_that_it_was_rejected() -> None:
    net = Net(2, limits=replace(LARGE, policy=POLICY), message_format=MessageFormat(make_letter=described))
    subscriber, letters, publisher = net.subscriber(net.nodes[0]), dead_letters(net), net.publisher(net.nodes[1])
    send_large(publisher, b"1")
    take_all(subscriber)
    answer(subscriber, REJECTED, b"1")
    assert publisher.outcomes == [(1, REJECTED)]
    assert net.nodes[1].count(Decision.DELIVERY_FAILED) == 1
    assert bodies(letters) == []
    publisher.settle(b"1")
    sent = publisher.send(b"2")
    subscriber.answer(REJECTED, b"2")
    letters.accept(b"2")
    assert publisher.outcomes[1:] == [(sent, DeliveryOutcome.ACCEPTED)]


def test_a_large_message_that_was_rejected_before_it_came_again_has_no_letter_either() -> None:
    net = Net(2, limits=replace(LARGE, policy=POLICY), message_format=MessageFormat(make_letter=described))
    subscriber, letters, publisher = net.subscriber(net.nodes[0]), dead_letters(net), net.publisher(net.nodes[1])
    send_large(publisher, b"1")
    take_all(subscriber)
    net.held.add((0, 1))
    answer(subscriber, REJECTED, b"1")
    publisher.drop()
    net.held.clear()
    net.run()
    publisher = net.publisher(net.nodes[1], unsettled={b"1": None})
    sent = send_large(publisher, b"1")
    assert publisher.outcomes == [(sent, REJECTED)]
    assert bodies(letters) == []
    publisher.settle(b"1")
    sent = publisher.send(b"2")
    subscriber.answer(REJECTED, b"2")
    letters.accept(b"2")
    assert publisher.outcomes[1:] == [(sent, DeliveryOutcome.ACCEPTED)]


GIVEN_UP = replace(LIMITS, policy=replace(POLICY, dead_letter_wait_s=30.0))


@pytest.mark.parametrize("routers", [1, 2])
def test_a_letter_that_nobody_asks_for_is_given_up_in_time_and_its_publisher_reported_rejected(routers: int) -> None:
    net = Net(routers, limits=GIVEN_UP)
    subscriber, publisher = net.subscriber(net.nodes[-1]), net.publisher(net.nodes[0])
    sent = [publisher.send(tag) for tag in (b"1", b"2", b"3")]
    subscriber.answer(REJECTED, b"1", b"2")
    net.advance(29.0)
    assert publisher.outcomes == []
    net.advance(2.0)
    assert publisher.outcomes == [(number, REJECTED) for number in sent[:2]]
    reported = {each.description for each in publisher.all(effects.Dispose)}
    assert reported == {"rejected by 1 of its subscriptions; nobody has a dead letter of it"}
    subscriber.answer(REJECTED, b"3")  # nobody has been there for long: it waits no longer
    assert publisher.outcomes == [(number, REJECTED) for number in sent]
    assert net.nodes[0].count(Decision.DEAD_LETTER_GIVEN_UP) == 3


def test_letters_wait_anew_when_a_dead_letter_subscription_has_come_and_gone() -> None:
    net = Net(limits=GIVEN_UP)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    sent = publisher.send(b"1")
    subscriber.answer(REJECTED, b"1")
    net.advance(29.0)
    letters = dead_letters(net)
    net.advance(60.0)
    assert publisher.outcomes == []
    letters.detach(closed=True)
    net.advance(29.0)
    assert publisher.outcomes == []
    net.advance(2.0)
    assert publisher.outcomes == [(sent, REJECTED)]


def test_a_letter_that_was_given_up_is_no_letter_for_who_comes_later_and_is_settled_where_it_was_sent() -> None:
    net = Net(limits=GIVEN_UP)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    letters = dead_letters(net)
    publisher.send(b"1")
    subscriber.answer(REJECTED, b"1")
    (had,) = letters.all(effects.Deliver)
    letters.detach(closed=True)
    net.advance(31.0)
    again = dead_letters(net, unsettled={had.tag: None})
    assert again.all(effects.Deliver) == []
    publisher.settle(b"1")
    assert again.settled == [b"1"]


def test_a_shorter_time_of_the_policy_counts_from_now_on_for_what_waits() -> None:
    net = Net(limits=LIMITS)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    sent = publisher.send(b"1")
    subscriber.answer(REJECTED, b"1")
    net.advance(3600.0)
    assert publisher.outcomes == []
    net.feed(net.nodes[0], PoliciesChanged(lambda _topic: GIVEN_UP.policy))
    net.advance(29.0)
    assert publisher.outcomes == []
    net.advance(2.0)
    assert publisher.outcomes == [(sent, REJECTED)]


def test_what_expired_becomes_a_letter_that_says_so_and_does_not_expire() -> None:
    limits = replace(LIMITS, policy=replace(POLICY, ttl_s=5.0))
    net = Net(2, limits=limits, message_format=MessageFormat(make_letter=described))
    net.subscriber(net.nodes[0], limit=0)
    publisher = net.publisher(net.nodes[1])
    sent = publisher.send(b"1")
    net.advance(6.0)
    assert publisher.outcomes == []
    net.advance(20.0)
    letters = dead_letters(net)
    assert bodies(letters) == [b"1|orders|s/link|expired|0||1"]
    letters.accept(b"1")
    assert publisher.outcomes == [(sent, DeliveryOutcome.ACCEPTED)]


def test_the_letter_has_the_tag_of_the_original_with_another_flag_whatever_its_length() -> None:
    net = Net(limits=LIMITS)
    subscriber, letters, publisher = net.subscriber(net.nodes[0]), dead_letters(net), net.publisher(net.nodes[0])
    for tag in (b"1", b"t" * 30):
        publisher.send(tag)
    originals = [delivery.tag for delivery in subscriber.all(effects.Deliver)]
    subscriber.feed(SubscriberDisposition(subscriber.number, originals, REJECTED, False))
    tags = [delivery.tag for delivery in letters.all(effects.Deliver)]
    session = session_of(net)
    assert tags == [network_tag(NONCE, session, tag, True) for tag in (b"1", b"t" * 30)]
    assert all(map(is_letter_tag, tags))
    assert [tag[1:] for tag in tags] == [tag[1:] for tag in originals]
    assert not any(map(is_letter_tag, originals))


@pytest.mark.parametrize("routers", [1, 2])
def test_the_letter_says_why_in_the_words_of_the_subscriber_cut_to_a_length(routers: int) -> None:
    net = Net(routers, limits=LIMITS, message_format=MessageFormat(make_letter=described))
    subscriber, letters, publisher = net.subscriber(net.nodes[-1]), dead_letters(net), net.publisher(net.nodes[0])
    publisher.send(b"1")
    subscriber.answer(REJECTED, b"1", error="app:broken: " + "x" * 1000)
    (body,) = bodies(letters)
    assert body.split(b"|")[5] == (b"app:broken: " + b"x" * 1000)[:LETTER_ERROR_CHARS]


def test_a_topic_without_a_dead_letter_topic_gets_no_reason_of_another_router() -> None:
    net = Net(2)
    subscriber, publisher = net.subscriber(net.nodes[1]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    subscriber.answer(REJECTED, b"1", error="app:broken")
    sent = [effect.message for effect in net.nodes[1].all(effects.SendToRouters)]
    assert not [message for message in sent if type(message).__name__ == "Reason"]


def test_what_was_failed_too_often_becomes_a_letter_that_counts_the_attempts() -> None:
    net = Net(limits=LIMITS, message_format=MessageFormat(make_letter=described))
    subscriber, letters, publisher = net.subscriber(net.nodes[0]), dead_letters(net), net.publisher(net.nodes[0])
    publisher.send(b"1")
    subscriber.answer(FAILED, b"1")
    net.advance(1.0)
    assert bodies(letters) == []
    subscriber.answer(FAILED, b"1")
    assert bodies(letters) == [b"1|orders|s/link|max-attempts|2||1"]


def test_a_message_that_several_subscriptions_fail_has_one_letter_sent_when_all_are_done() -> None:
    net = Net(limits=LIMITS, message_format=MessageFormat(make_letter=described))
    one, other = net.subscriber(net.nodes[0], "one"), net.subscriber(net.nodes[0], "other")
    letters, publisher = dead_letters(net), net.publisher(net.nodes[0])
    publisher.send(b"1")
    one.answer(REJECTED, b"1")
    assert bodies(letters) == []
    other.answer(REJECTED, b"1")
    assert bodies(letters) == [b"1|orders|one/link|rejected|1||2"]


def test_letters_go_out_in_the_order_of_the_window() -> None:
    net = Net(limits=LIMITS)
    subscriber, letters, publisher = net.subscriber(net.nodes[0]), dead_letters(net), net.publisher(net.nodes[0])
    for tag in (b"1", b"2", b"3"):
        publisher.send(tag)
    subscriber.answer(REJECTED, b"3")
    subscriber.accept(b"2")
    assert letters.deliveries == []
    subscriber.answer(REJECTED, b"1")
    assert letters.deliveries == [b"1", b"3"]


def test_a_letter_that_nobody_is_there_for_waits_is_named_and_goes_to_whoever_comes() -> None:
    net = Net(limits=LIMITS)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    sent = publisher.send(b"1")
    subscriber.answer(REJECTED, b"1")
    subscriber.detach(closed=True)  # its end changes nothing
    assert publisher.outcomes == []
    assert publisher.ask(b"1").names == ["no subscription of the dead-letter topic dead"]
    assert net.nodes[0].count(Decision.DEAD_LETTER_WAITS) == 1
    letters = dead_letters(net)
    assert publisher.ask(b"1").names == ["d/link"]
    letters.accept(b"1")
    assert publisher.outcomes == [(sent, DeliveryOutcome.ACCEPTED)]


def test_a_letter_waits_again_when_the_last_dead_letter_subscription_ends_without_it() -> None:
    net = Net(limits=LIMITS)
    subscriber, letters, publisher = net.subscriber(net.nodes[0]), dead_letters(net), net.publisher(net.nodes[0])
    publisher.send(b"1")
    subscriber.answer(REJECTED, b"1")
    letters.detach(closed=True)
    assert dead_letters(net, name="e").deliveries == [b"1"]
    assert publisher.outcomes == []


def test_all_dead_letter_subscriptions_must_be_done_or_gone_and_one_done() -> None:
    net = Net(limits=LIMITS)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    one, other = dead_letters(net, name="one"), dead_letters(net, name="other")
    sent = publisher.send(b"1")
    subscriber.answer(REJECTED, b"1")
    one.accept(b"1")
    assert publisher.outcomes == []
    other.detach(closed=True)
    assert publisher.outcomes == [(sent, DeliveryOutcome.ACCEPTED)]


def test_who_comes_while_a_letter_is_under_way_gets_it_and_not_what_is_done() -> None:
    net = Net(limits=LIMITS)
    subscriber, letters, publisher = net.subscriber(net.nodes[0]), dead_letters(net), net.publisher(net.nodes[0])
    for tag in (b"1", b"2"):
        publisher.send(tag)
        subscriber.answer(REJECTED, tag)
    letters.accept(b"1")
    assert dead_letters(net, name="late").deliveries == [b"2"]


@pytest.mark.parametrize("routers", [2, 3])
def test_the_next_ingress_makes_the_same_letter_and_who_has_done_it_gets_it_no_more(routers: int) -> None:
    net = Net(routers, limits=LIMITS)
    subscriber, letters = net.subscriber(net.nodes[0]), dead_letters(net, -1 if routers > 2 else 0)
    first = net.publisher(net.nodes[1])
    first.send(b"1")
    subscriber.answer(REJECTED, b"1")
    net.held.add((0, 1))
    net.held.add((2, 1))
    letters.accept(b"1")
    net.kill(net.nodes[1])
    net.held.clear()
    second = net.publisher(net.nodes[0], unsettled={b"1": None})
    sent = second.send(b"1")
    assert second.outcomes == [(sent, DeliveryOutcome.ACCEPTED)]
    assert letters.deliveries == [b"1"]
    second.settle(b"1")
    assert letters.settled == [b"1"]


def test_a_letter_of_a_former_ingress_is_settled_with_its_message_though_nobody_knows_of_the_failure() -> None:
    net = Net(2, limits=LIMITS)
    subscriber, letters = net.subscriber(net.nodes[0]), dead_letters(net)
    net.publisher(net.nodes[1]).send(b"1")
    subscriber.answer(REJECTED, b"1")
    letters.accept(b"1")
    subscriber.detach(closed=True)
    net.kill(net.nodes[1])
    second = net.publisher(net.nodes[0], unsettled={b"1": None})
    sent = second.send(b"1")
    assert second.outcomes == [(sent, DeliveryOutcome.ACCEPTED)]
    assert letters.settled == []
    second.settle(b"1")
    assert letters.settled == [b"1"]


def test_a_dead_letter_subscriber_that_comes_back_with_its_map_gets_no_letter_twice() -> None:
    net = Net(2, limits=LIMITS)
    subscriber, letters, publisher = net.subscriber(net.nodes[0]), dead_letters(net), net.publisher(net.nodes[0])
    for tag in (b"1", b"2"):
        publisher.send(tag)
        subscriber.answer(REJECTED, tag)
    tags = [delivery.tag for delivery in letters.all(effects.Deliver)]
    letters.drop()
    back = dead_letters(net, 1, unsettled={tags[0]: DeliveryOutcome.ACCEPTED})
    assert back.last(effects.SubscriberReply).kept == [tags[0]]
    assert back.deliveries == [b"2"]
    assert len(publisher.accepted) == 1


def test_an_ended_session_settles_its_letters() -> None:
    net = Net(2, limits=LIMITS)
    subscriber, letters, publisher = net.subscriber(net.nodes[0]), dead_letters(net, 1), net.publisher(net.nodes[0])
    publisher.send(b"1")
    subscriber.answer(REJECTED, b"1")
    letters.accept(b"1")
    publisher.detach(closed=True)
    assert letters.settled == [b"1"]


def test_messages_to_all_subscriptions_of_a_router_reach_no_letters_stream() -> None:
    net = Net(2, limits=LIMITS)
    subscriber, letters, publisher = net.subscriber(net.nodes[1]), dead_letters(net, 1), net.publisher(net.nodes[0])
    publisher.send(b"1")
    assert subscriber.deliveries == [b"1"]
    assert letters.deliveries == []


def test_a_subscription_that_has_had_the_message_itself_gets_no_letter() -> None:
    net = Net(limits=LIMITS)
    everything = net.subscriber(net.nodes[0], "all", topic="#")
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    everything.accept(b"1")
    subscriber.answer(REJECTED, b"1")
    assert everything.deliveries == [b"1"]
    assert publisher.ask(b"1").count == 1


@pytest.mark.parametrize("share", [None, Share("workers")])
def test_a_subscription_that_answers_nothing_or_is_shared_gets_no_letters(share: Share | None) -> None:
    net = Net(limits=LIMITS)
    mode = SubscriptionMode.AT_MOST_ONCE if share is None else SubscriptionMode.EXACTLY_ONCE
    other = net.subscriber(net.nodes[0], "d", topic=DEAD, mode=mode, share=share)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    subscriber.answer(REJECTED, b"1")
    assert other.deliveries == []
    assert publisher.outcomes == []


def test_what_a_dead_letter_subscription_rejects_or_fails_is_done_and_makes_no_letter() -> None:
    net = Net(limits=LIMITS)
    subscriber, letters, publisher = net.subscriber(net.nodes[0]), dead_letters(net), net.publisher(net.nodes[0])
    for tag in (b"1", b"2"):
        publisher.send(tag)
        subscriber.answer(REJECTED, tag)
    letters.answer(REJECTED, b"1")
    assert len(publisher.accepted) == 1
    letters.answer(FAILED, b"2")
    net.advance(1.0)
    assert [(d.tag[11:], d.attempt) for d in letters.all(effects.Deliver)] == [(b"1", 0), (b"2", 0), (b"2", 1)]
    letters.answer(FAILED, b"2")
    assert len(publisher.accepted) == 2
    assert net.nodes[0].count(Decision.DEAD_LETTER_SENT) == 2


def test_a_publisher_that_wants_rejections_reported_is_reported_behind_the_letter() -> None:
    net = Net(limits=Limits(policy=replace(POLICY, report_rejections=True)))
    subscriber, letters, publisher = net.subscriber(net.nodes[0]), dead_letters(net), net.publisher(net.nodes[0])
    sent = publisher.send(b"1")
    subscriber.answer(REJECTED, b"1")
    assert publisher.outcomes == []
    letters.accept(b"1")
    assert publisher.outcomes == [(sent, REJECTED)]
    assert publisher.last(effects.Dispose).info == {"subscriptions": ["s/link"], "count": 1}


def test_a_letter_that_a_full_map_holds_back_passes_when_it_is_older_than_all_in_it() -> None:
    net = Net(2, limits=LIMITS)
    stock = net.stock_subscriber(net.nodes[0])
    letters = dead_letters(net, map_bound=1)
    first = net.publisher(net.nodes[1])
    for tag in (b"1", b"2"):
        first.send(tag)
    stock.answer(DeliveryOutcome.ACCEPTED, b"1", settled=True)
    stock.answer(REJECTED, b"2", settled=True)
    letters.accept(b"2")
    stock.drop()
    net.kill(net.nodes[1])
    second = net.publisher(net.nodes[0], unsettled={b"1": None, b"2": None})
    again = net.stock_subscriber(net.nodes[0])
    for tag in (b"1", b"2"):
        second.send(tag)
    again.answer(REJECTED, b"1", settled=True)
    assert letters.deliveries == [b"2", b"1"]


def _rules(net: Net, policy: TopicPolicy) -> None:
    for node in net.nodes:
        net.feed(node, PoliciesChanged(lambda _topic: policy))


def test_a_dead_letter_topic_that_is_taken_away_settles_its_letters_and_lets_publishers_go_on() -> None:
    net = Net(2, limits=LIMITS)
    subscriber, letters, publisher = net.subscriber(net.nodes[0]), dead_letters(net, 1), net.publisher(net.nodes[0])
    sent = publisher.send(b"1")
    subscriber.answer(REJECTED, b"1")
    _rules(net, replace(POLICY, dead_letter=""))
    assert publisher.outcomes == [(sent, DeliveryOutcome.ACCEPTED)]
    assert letters.settled == [b"1"]


def test_a_dead_letter_topic_that_is_named_later_holds_at_links_that_are_attached() -> None:
    net = Net(limits=Limits())
    subscriber, letters, publisher = net.subscriber(net.nodes[0]), dead_letters(net), net.publisher(net.nodes[0])
    publisher.send(b"1")
    subscriber.answer(REJECTED, b"1")
    assert len(publisher.accepted) == 1
    _rules(net, POLICY)
    publisher.send(b"2")
    subscriber.answer(REJECTED, b"2")
    assert letters.deliveries == [b"2"]
    assert len(publisher.accepted) == 1


def test_letters_that_the_rules_of_the_subscribers_router_do_not_know_yet_come_when_they_do() -> None:
    net = Net(2, limits=Limits())
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    net.feed(net.nodes[0], PoliciesChanged(lambda _topic: POLICY))
    publisher.send(b"1")
    subscriber.answer(REJECTED, b"1")
    letters = dead_letters(net, 1)
    assert letters.deliveries == []
    assert publisher.outcomes == []
    net.feed(net.nodes[1], PoliciesChanged(lambda _topic: POLICY))
    net.advance(1.0)
    assert letters.deliveries == [b"1"]
    letters.accept(b"1")
    assert len(publisher.accepted) == 1


def test_another_dead_letter_topic_takes_over_what_nobody_is_done_with() -> None:
    net = Net(limits=LIMITS)
    subscriber, letters, publisher = net.subscriber(net.nodes[0]), dead_letters(net), net.publisher(net.nodes[0])
    other = net.subscriber(net.nodes[0], "other", topic="graves")
    publisher.send(b"1")
    subscriber.answer(REJECTED, b"1")
    _rules(net, replace(POLICY, dead_letter="graves"))
    assert other.deliveries == [b"1"]
    assert letters.settled == [b"1"]
    other.accept(b"1")
    assert len(publisher.accepted) == 1


def test_a_failed_message_without_a_dead_letter_topic_is_counted_and_logged_once_in_a_while() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])

    def fail(tag: bytes, link: PublisherLink) -> list[effects.Note]:
        link.send(tag)
        subscriber.answer(REJECTED, tag)
        return [n for n in net.nodes[0].all(effects.Note) if n.decision is Decision.DELIVERY_FAILED]

    fail(b"1", publisher)
    (note,) = fail(b"2", publisher)
    publisher.settle(b"1", b"2")
    assert (note.fields["topic"], note.fields["subscription"]) == ("orders", "s/link")
    net.advance(LETTER_NOTE_S)
    assert len(fail(b"3", publisher)) == 2
    assert net.nodes[0].count(Decision.DELIVERY_FAILED) == 3
    assert len(publisher.accepted) == 3


def test_what_a_publisher_waits_for_is_the_missing_subscription_and_then_the_one_that_has_the_letter() -> None:
    net = Net(limits=LIMITS)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    subscriber.answer(REJECTED, b"1")
    core = net.nodes[0].core
    (ingress,) = core.ingresses.values()
    found = waiting(ingress)
    assert found is not None
    assert (found.reason, ingress.fanout.letters and ingress.fanout.letters.waiting) == (Reason.DEAD_LETTER, 1)
    letters = dead_letters(net)
    found = waiting(ingress)
    assert found is not None
    assert found.reason is Reason.SUBSCRIPTIONS
    (owes,), _ = owing(core.turn, core.egresses, ingress, found.number, 8, 100)
    assert (owes.subscription.name, owes.state) == ("d/link", Holder.IN_DOUBT)
    for tag in (subscriber.network_tag(b"1"), letters.network_tag(b"1")):
        (record,) = find(core.turn, core.endpoints, tag)
        assert [(each.name, each.owed) for each in record.local] == [("s/link", False), ("d/link", True)]


def test_what_happens_to_a_failed_message_can_be_traced() -> None:
    net = Net(limits=LIMITS)
    core = net.nodes[0].core
    subscriber, letters, publisher = net.subscriber(net.nodes[0]), dead_letters(net), net.publisher(net.nodes[0])
    core.trace.start(Choice(), net.now)
    publisher.send(b"1")
    subscriber.answer(REJECTED, b"1")
    letters.accept(b"1")
    steps = [step.text for step in core.trace.steps_of(subscriber.network_tag(b"1")) if step.rule == "I-3e"]
    assert steps == [
        "failed by subscription s/link: a dead letter is owed before its publisher is notified",
        "dead letter sent to 1 subscriptions; without one it waits",
        "dead letter is done: 0 still owe it",
    ]


def test_a_shared_subscription_of_a_dead_letter_topic_is_refused() -> None:
    net = Net(limits=Limits(policy=TopicPolicy(is_dead_letter=True)))
    link = SubscriberLink(net, net.nodes[0])
    link.attach("d", topic=DEAD, share=Share("workers"))
    assert link.end().condition == "amqp:not-implemented"
    assert "dead-letter" in link.end().description
