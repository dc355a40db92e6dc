'use strict';

const assert = require('node:assert');
const { test } = require('node:test');
const { PublisherCore } = require('../lib/publisher_core.js');
const { SubscriberCore } = require('../lib/subscriber_core.js');

const ACCEPTED = { kind: 'accepted' };
const BOUND = 100;
/** Tags of one session: a byte of flags, the nonce, the session, and the publisher's tag. */
const tag = (number) => `00aaaaaaaa000000000001${String(number).padStart(2, '0')}`;

function publisher(messages = []) {
    return new PublisherCore({ nextNumber: messages.length + 1, messages, window: 10 });
}

function submitted(core, count) {
    for (let number = 0; number < count; number++) core.stored(core.submit(Buffer.from('x')));
}

function sent(core) {
    const numbers = [];
    for (let message; (message = core.next(BOUND)); message.id = numbers.length) numbers.push(message.number);
    return numbers;
}

test('what was sent is presented and goes again first, in order; what was not sent is not presented', () => {
    const core = publisher();
    core.present();
    submitted(core, 3);
    core.next(BOUND).id = 0;
    core.next(BOUND).id = 1;
    core.lost();
    assert.deepStrictEqual(core.present().map(({ number }) => number), [1, 2]);
    assert.deepStrictEqual(sent(core), [1, 2, 3]);
});

test('what has an outcome is left out of the map', () => {
    const core = publisher();
    core.present();
    submitted(core, 2);
    sent(core);
    assert.strictEqual(core.decide(Buffer.from('0000000000000001', 'hex'), ACCEPTED, false).number, 1);
    assert.strictEqual(core.decide(Buffer.from('0000000000000001', 'hex'), ACCEPTED, false), undefined);
    core.lost();
    assert.deepStrictEqual(core.present().map(({ number }) => number), [2]);
});

test('of an expired session only what may have been sent is unknown', () => {
    const core = publisher();
    core.present();
    submitted(core, 2);
    core.next(BOUND).id = 0;
    assert.deepStrictEqual(core.expire().map(({ number }) => number), [1]);
});

test('new messages wait while the map is as large as a frame allows', () => {
    const core = publisher();
    core.present();
    submitted(core, 3);
    assert.deepStrictEqual([core.next(2).number, core.next(2).number, core.next(2)], [1, 2, undefined]);
});

test('a message that a subscription did not get is named by the revision before which it was sent', () => {
    const core = publisher();
    core.present();
    submitted(core, 3);
    sent(core);
    core.started(70, 2);
    core.started(80, 3);
    core.present();
    assert.deepStrictEqual(core.starts().map(([each, revision]) => [each.readUInt8(7), revision]), [[2, 70], [3, 80]]);
});

function subscriber(entries = []) {
    const core = new SubscriberCore({ entries, incarnation: '1', prefetch: 4 });
    core.present();
    core.attached(entries.map(([each]) => each), '1');
    return core;
}

const arrive = (core, number, more = {}) => core.arrived({ id: number, tag: tag(number), ...more });

test('a repeat of what is done is answered, of what is under way it is nothing', () => {
    const core = subscriber();
    const { deliver } = arrive(core, 1);
    assert.deepStrictEqual(arrive(core, 1), {});
    const processed = [[deliver, ACCEPTED]];
    core.process(processed);
    core.recorded(processed);
    assert.strictEqual(arrive(core, 1).answer, deliver);
});

test('a done entry is recorded with the earlier ones of its session that are not done', () => {
    const core = subscriber();
    arrive(core, 1);
    const { deliver } = arrive(core, 2);
    const { entries } = core.process([[deliver, ACCEPTED]]);
    assert.deepStrictEqual(entries.map(([each, outcome]) => [each.toString('hex'), outcome]), [[tag(1), null], [tag(2), ACCEPTED]]);
});

test('what the reply leaves out is settled, and is processed all the same if it is under way', () => {
    const core = subscriber([[tag(1), ACCEPTED]]);
    const { deliver } = arrive(core, 2);
    core.present();
    core.attached([], '1');
    assert.strictEqual(core.present().length, 0);
    const processed = [[deliver, ACCEPTED]];
    core.process(processed);
    assert.deepStrictEqual(core.recorded(processed), []); // nobody waits for an answer
});

test('what a restart found without an outcome is processed when its body comes again', () => {
    const core = subscriber([[tag(1), null], [tag(2), ACCEPTED]]);
    assert.strictEqual(arrive(core, 1, { isResumed: true }).deliver.tag, tag(1));
    assert.deepStrictEqual(arrive(core, 2, { isResumed: true, isSettled: true }), {});
    assert.deepStrictEqual(core.present().map(([each]) => each), [tag(1)]);
});

test('an aborted delivery changes nothing, and a settled one is new whatever its tag', () => {
    const core = subscriber();
    assert.deepStrictEqual(arrive(core, 1, { isAborted: true }), {});
    arrive(core, 2);
    assert.ok(arrive(core, 2, { isSettled: true }).deliver);
    assert.strictEqual(core.present().length, 1);
});

test('credit is a place for each delivery ahead, and one for each entry that is not resumed', () => {
    const core = subscriber([[tag(1), null], [tag(2), ACCEPTED]]);
    assert.strictEqual(core.limit, 6);
    arrive(core, 1, { isResumed: true });
    arrive(core, 2, { isResumed: true, isSettled: true });
    assert.strictEqual(core.limit - core.received, 3); // the body takes a place, until it is processed
});
