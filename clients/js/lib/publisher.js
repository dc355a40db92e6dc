// A publisher: its journal first, then the wire.
'use strict';

const { types, message: rheaMessage } = require('rhea');
const { Link, EXACTLY_ONCE, ECHO, OUTCOMES } = require('./link.js');
const { NotAccepted, OncewireError } = require('./errors.js');
const { PublisherCore, TAG_BYTES } = require('./publisher_core.js');
const { encodedMap, outcomeOf, rawValue } = require('./states.js');

const WINDOW = 1024;
const TIMEOUT_S = 86_400;
const START = 'x-opt-topic-start';
const START_TAG = 'x-opt-topic-start-tag';
const STARTS = 'x-opt-topic-starts';
const RESUME = 'x-opt-topic-resume';
const UNKNOWN = { kind: 'unknown', description: 'the publisher was disconnected for longer than its time-out' };
const SETTLED = { kind: 'unknown', description: 'the router settled it without an outcome' };

/** One submitted message. `outcome` resolves to { kind, condition?, description? }; kind is accepted, rejected, ... */
class Sending {
    constructor(number) {
        this.number = number;
        this.outcome = new Promise((resolve, reject) => {
            this._resolve = resolve;
            this._reject = reject;
        });
        this.outcome.catch(() => {}); // whoever awaits it gets the error
    }
}

/**
 * Publishes to one topic, each message exactly once. `recovered` has the messages that the journal held when it was
 * opened: they are sent again by themselves. `nextNumber` is how many were ever submitted, and one: a program that
 * publishes the rows of a table continues with row `nextNumber`.
 */
class Publisher extends Link {
    constructor(client, topic, { name, journal, window = WINDOW, timeout = TIMEOUT_S }) {
        super(client, topic, { name, journal, timeout });
        const { nextNumber, messages, outcomes } = journal.publisher(name);
        this._core = new PublisherCore({ nextNumber, messages: [...messages], window });
        this._sendings = new Map();
        this._submitters = [];
        this._admitted = 0; // have room, and have not taken it yet
        this._deciding = [];
        this._unseen = [...outcomes.keys()];
        this._maxMessageSize = 0;
        const numbers = [...messages.keys(), ...outcomes.keys()].sort((a, b) => a - b);
        this.recovered = numbers.map((number) => this._sending(number));
        for (const [number, outcome] of outcomes) this._report(number, outcome);
    }

    get nextNumber() {
        return this._core.nextNumber;
    }

    /**
     * Takes a message: a string, a Buffer, or a message of rhea ({ body, message_id, application_properties, ... }).
     * Resolves to a `Sending` when the journal has it: from then on it is published, whatever is killed. It waits while
     * the network gives no credit.
     */
    async submit(message) {
        const payload = encoded(message);
        if (this._failure) throw this._failure;
        if (this._maxMessageSize && payload.length > this._maxMessageSize) {
            throw new OncewireError('the message is too large', `it has ${payload.length} bytes, the router takes ${this._maxMessageSize}`,
                'send less, or raise limits.max_message_size of the routers');
        }
        if (this._submitters.length || this._admitted || this._room() <= 0) {
            await new Promise((resolve, reject) => this._submitters.push({ resolve, reject }));
            this._admitted--;
            if (this._failure) throw this._failure;
        }
        const taken = this._core.submit(payload);
        const sending = this._sending(taken.number);
        this._makeRoom();
        await this._write({ stored: [[taken.number, payload]] });
        this._core.stored(taken);
        this._send();
        return sending;
    }

    /** `submit`, and wait until every subscription has processed it. Throws NotAccepted with any other outcome. */
    async publish(message) {
        const sending = await this.submit(message);
        const outcome = await sending.outcome;
        if (outcome.kind !== 'accepted') throw new NotAccepted(outcome);
        return sending.number;
    }

    /** Waits until every message has its outcome, then ends the session at the network. */
    async close() {
        await Promise.allSettled([...this._sendings.values()].map((sending) => sending.outcome));
        await this._busy;
        return this._close();
    }

    // --- the link -----------------------------------------------------------------------------------------------------

    _attach(session) {
        const presented = this._core.present();
        const starts = this._core.starts().map(([tag, revision]) => [tag, types.wrap_ulong(revision)]);
        session.attach({
            name: this.name,
            role: false,
            snd_settle_mode: 0,
            rcv_settle_mode: 1,
            initial_delivery_count: 0,
            source: { address: this._client.containerId, outcomes: OUTCOMES },
            target: this._terminus(),
            unsettled: encodedMap(presented.map((message) => [message.tag.toString('hex'), null])),
            desired_capabilities: [EXACTLY_ONCE],
            properties: starts.length ? { [STARTS]: starts } : undefined,
        });
        this._presented = presented.length;
        this._hasCredit = false;
    }

    _attached(reply) {
        this._maxMessageSize = reply.maxMessageSize;
        if (this._presented && reply.properties[RESUME] === 'new') {
            this.fail(this._refusal({ condition: 'new session', description: 'the router ignored the unsettled deliveries' }));
        }
    }

    onFlow(flow) {
        this._answerEcho(flow);
        const { properties } = flow;
        if (properties[ECHO]) this._core.started(Number(properties[ECHO]));
        const start = properties[START];
        const tag = start && rawValue(flow.raw, START_TAG)?.value;
        if (tag?.length === TAG_BYTES) this._core.started(Number(start), Number(tag.readBigUInt64BE()));
        if (!this._hasCredit && this._session.credit > 0) {
            this._hasCredit = true;
            this._isActive();
        }
        this._send();
        if (flow.drain && this._session.credit > 0) {
            this._session.deliveryCount += this._session.credit;
            this._session.flow(undefined, 0);
        }
    }

    onDelivery() {
        throw new Error('a router sends nothing on a link that publishes');
    }

    onDisposition(named, state, isSettled) {
        const outcome = state ? outcomeOf(state) : isSettled ? SETTLED : undefined;
        if (!outcome) return;
        for (const [, tag] of named) {
            const message = this._core.decide(tag, outcome, isSettled);
            if (message) this._deciding.push(message);
        }
        this._record();
    }

    _isOver() {
        this._core.lost();
    }

    _expired() {
        for (const message of this._core.expire()) {
            message.outcome = UNKNOWN;
            this._deciding.push(message);
        }
        this._record();
    }

    /** P-a: record, settle, remove, in this order; an attach waits until it is recorded. */
    _record() {
        if (!this._busy && this._deciding.length) {
            this._busy = this._recordAll().then(() => (this._busy = undefined), (error) => this.fail(error));
        }
    }

    async _recordAll() {
        while (this._deciding.length) {
            const messages = this._deciding.splice(0);
            await this._journal.write({
                link: `P:${this.name}`,
                decided: messages.map(({ number, outcome }) => [number, outcome]),
                forgotten: this._unseen.splice(0),
            });
            const open = messages.filter(({ id, isSettledByPeer }) => id !== undefined && !isSettledByPeer);
            this._session?.dispose(open.map(({ id }) => id), undefined, true); // those of a lost attach have no id any more
            for (const message of messages) {
                this._core.recorded(message);
                this._report(message.number, message.outcome);
                if (message.outcome.kind !== 'accepted') this._unseen.push(message.number);
            }
            this._makeRoom();
            this._send();
        }
    }

    async _write(changes) {
        try {
            await this._journal.write({ link: `P:${this.name}`, ...changes });
        } catch (error) {
            this.fail(error);
            throw error;
        }
    }

    // --- sending ------------------------------------------------------------------------------------------------------

    _room() {
        return this._session && this._hasCredit ? this._core.room(this._session.credit) - this._admitted : 0;
    }

    _makeRoom() {
        while (this._submitters.length && this._room() > 0) {
            this._admitted++;
            this._submitters.shift().resolve();
        }
    }

    _send() {
        const session = this._session;
        while (session && this._hasCredit && session.credit > 0) {
            const message = this._core.next(this._mapBound);
            if (!message) break;
            message.id = session.transfer(message.tag, message.payload);
        }
        this._makeRoom();
    }

    _sending(number) {
        const sending = new Sending(number);
        this._sendings.set(number, sending);
        return sending;
    }

    _report(number, outcome) {
        this._sendings.get(number)?._resolve(outcome);
        this._sendings.delete(number);
    }

    _failed(error) {
        for (const { reject } of this._submitters.splice(0)) reject(error);
        for (const sending of this._sendings.values()) sending._reject(error);
    }
}

function encoded(message) {
    if (Buffer.isBuffer(message)) return rheaMessage.encode({ body: rheaMessage.data_section(message) });
    return rheaMessage.encode(typeof message === 'string' ? { body: message } : message);
}

module.exports = { Publisher };
