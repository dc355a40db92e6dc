// A subscriber: its journal first, then the wire.
'use strict';

const { types, message: rheaMessage } = require('rhea');
const { Link, EXACTLY_ONCE, OUTCOMES } = require('./link.js');
const { LinkRefused } = require('./errors.js');
const { encodedMap, rawValue, stateOf, tagsOf } = require('./states.js');
const { SubscriberCore } = require('./subscriber_core.js');

const PREFETCH = 256;
const TIMEOUT_S = 60;
const PART_ENTRIES = 1000;
const INCARNATION = 'x-opt-topic-incarnation';
const CONFIRMED = 'x-opt-topic-confirmed';
const MAP_ENTRIES = 'x-opt-topic-map-entries';
const MAP_PART = 'x-opt-topic-map-part';
const ACCEPTED = { kind: 'accepted' };

/** One message to process. Its effect is to be durable before `accept` is called. */
class Delivery {
    constructor(subscriber, entry, message) {
        /** Names this delivery on each link and after each restart: an effect that is kept by it is done once. */
        this.id = entry.tag;
        this.message = message;
        this._subscriber = subscriber;
        this._entry = entry;
    }

    /** The body: a Buffer where the message has data sections, else AMQP's value. */
    get body() {
        const { body } = this.message;
        return body && body.typecode === 0x75 ? Buffer.concat([].concat(body.content)) : body;
    }

    /** It is processed. Resolves when the journal has that: it is never delivered again. */
    accept() {
        return this._subscriber._complete(this._entry, ACCEPTED);
    }

    /** It is processed, and refused: it does not come again. What its publisher learns, the topic's policy decides. */
    reject(description = '', condition = 'amqp:precondition-failed') {
        return this._subscriber._complete(this._entry, { kind: 'rejected', condition, description });
    }
}

/**
 * Receives a topic, or a pattern of topics, each message exactly once and in the order of its publisher:
 *
 *     for await (const delivery of subscriber) {
 *         await store(delivery.id, delivery.body);
 *         await delivery.accept();
 *     }
 *
 * Emits `restarted` when the network has made another subscription: messages may be missing before what comes next.
 */
class Subscriber extends Link {
    constructor(client, topic, { name, journal, prefetch = PREFETCH, timeout = TIMEOUT_S }) {
        super(client, topic, { name, journal, timeout });
        const { entries, incarnation } = journal.subscriber(name);
        this._core = new SubscriberCore({ entries: [...entries], incarnation, prefetch });
        this._prefetch = prefetch;
        this._arrived = [];
        this._waiting = [];
        this._toState = [];
    }

    /** The next delivery. Rejects when the subscriber is closed or has failed. */
    receive() {
        if (this._failure) return Promise.reject(this._failure);
        if (this._arrived.length) return Promise.resolve(this._arrived.shift());
        return new Promise((resolve, reject) => this._waiting.push({ resolve, reject }));
    }

    /** Waits for a delivery, and takes those that have come behind it, at most so many: one write for all their effects. */
    async receiveMany(limit = PREFETCH) {
        const delivery = await this.receive();
        return [delivery, ...this._arrived.splice(0, limit - 1)];
    }

    async *[Symbol.asyncIterator]() {
        while (!this._isClosed) {
            try {
                yield await this.receive();
            } catch (error) {
                if (error === this._failure && this._isClosed) return;
                throw error;
            }
        }
    }

    suspend() {
        this._state();
        this._isClosed = true;
        super.suspend();
    }

    /** Ends the subscription at the network. What is processed and not settled stays in the journal. */
    async unsubscribe() {
        this._isClosed = true;
        await this._close();
        await this._journal.write({ link: `S:${this.name}`, ...this._core.ended() });
    }

    // --- the link -----------------------------------------------------------------------------------------------------

    _attach(session) {
        const entries = this._core.present();
        const here = entries.slice(0, this._mapBound);
        const rest = entries.slice(this._mapBound);
        this._granted = 0;
        this._stated = rest.length ? entries.length : 0;
        this._reply = undefined;
        session.attach({
            name: this.name,
            role: true,
            snd_settle_mode: 0,
            rcv_settle_mode: 1,
            source: this._terminus({ distribution_mode: 'copy', outcomes: OUTCOMES }),
            target: { address: this._client.containerId },
            unsettled: encodedMap(here),
            incomplete_unsettled: rest.length > 0,
            desired_capabilities: [EXACTLY_ONCE],
            properties: rest.length ? { [MAP_ENTRIES]: types.wrap_uint(entries.length) } : undefined,
        });
        const size = Math.max(1, Math.min(PART_ENTRIES, this._mapBound));
        for (let at = 0; at < rest.length; at += size) { // C-4: right behind the attach
            session.flow({ [MAP_PART]: encodedMap(rest.slice(at, at + size)) });
        }
    }

    _attached(reply) {
        if (!reply.receiverSettlesSecond) return this._refuseTo('the router does not grant rcv-settle-mode second');
        const stated = reply.properties[MAP_ENTRIES];
        if ((this._stated || reply.isIncomplete) && stated === undefined) return this._refuseTo('its map does not fit a frame, and the router takes no rest of it');
        this._reply = { ...reply, kept: tagsOf(reply.unsettled) || [], total: reply.isIncomplete ? Number(stated) : 0 };
        this._takeReply();
    }

    _refuseTo(why) {
        this.fail(new LinkRefused(`the subscriber ${this.name} was not granted`, why, 'connect to a router of this release, with larger frames'));
    }

    /** what the reply leaves out is settled; so it counts when all of it is here. */
    _takeReply() {
        if (this._reply.kept.length < this._reply.total) return;
        const { kept, properties } = this._reply;
        this._reply = undefined;
        const former = this._core.incarnation;
        const incarnation = asText(properties[INCARNATION]);
        if (this._core.attached(kept, incarnation)) {
            this._recordLater({ incarnation });
            if (former) this.emit('restarted');
        }
        this._isActive();
        this._replenish();
    }

    _isActive() {
        if (this._isConfirmed) super._isActive();
    }

    onFlow(flow) {
        const part = this._reply && tagsOf(rawValue(flow.raw, MAP_PART));
        if (part) {
            this._reply.kept.push(...part);
            this._takeReply();
        }
        this._answerEcho(flow);
        if (flow.properties[CONFIRMED] !== undefined) {
            this._isConfirmed = true;
            this._isActive();
        }
    }

    onDelivery(arrived) {
        const { deliver, answer } = this._core.arrived({ ...arrived, tag: arrived.tag.toString('hex') });
        if (answer) this._session.dispose([answer.id], stateOf(answer.outcome), false);
        if (deliver) this._deliver(new Delivery(this, deliver, decoded(arrived)));
        this._replenish();
    }

    onDisposition(named, _state, isSettled) {
        if (!isSettled) return;
        this._core.settled(named.map(([, tag]) => tag.toString('hex')));
        if (this._core.hasManyForgotten) this._recordLater({ forgotten: this._core.takeForgotten() });
    }

    _isOver() {
        this._core.lost();
    }

    _expired() {} // the next attach makes another subscription

    /** C-3: when a quarter of the places is free, or none is left. */
    _replenish() {
        if (!this._session || this._reply) return;
        const grown = this._core.limit - this._granted;
        if (grown > 0 && (grown >= this._prefetch / 4 || this._granted <= this._core.received)) {
            this._granted = this._core.limit;
            this._session.flow(undefined, this._granted - this._core.received);
        }
    }

    // --- the application ----------------------------------------------------------------------------------------------

    _deliver(delivery) {
        const waiting = this._waiting.shift();
        if (waiting) waiting.resolve(delivery);
        else this._arrived.push(delivery);
    }

    /** Record, then state: an outcome that was stated and is not recorded would be processed again. */
    async _complete(entry, outcome) {
        if (this._failure) throw this._failure;
        if (entry.outcome) return;
        const processed = [[entry, outcome]];
        await this._record(this._core.process(processed));
        for (const each of this._core.recorded(processed)) this._answered(each);
        this._replenish();
    }

    /** Outcomes that were recorded together are stated together. */
    _answered(entry) {
        if (this._toState.push(entry) === 1) process.nextTick(() => this._state());
    }

    _state() {
        const present = this._toState.splice(0).filter((entry) => this._session && this._core.isPresent(entry));
        const accepted = present.filter(({ outcome }) => outcome.kind === 'accepted').map(({ id }) => id);
        if (accepted.length) this._session.dispose(accepted, stateOf(ACCEPTED), false);
        for (const { id, outcome } of present.filter((entry) => entry.outcome.kind !== 'accepted')) {
            this._session.dispose([id], stateOf(outcome), false);
        }
    }

    async _record(changes) {
        try {
            await this._journal.write({ link: `S:${this.name}`, ...changes });
        } catch (error) {
            this.fail(error);
            throw error;
        }
    }

    _recordLater(changes) {
        this._record(changes).catch(() => {}); // the link has failed with it
    }

    _failed(error) {
        for (const { reject } of this._waiting.splice(0)) reject(error);
    }
}

/** A number of up to 64 bits, which rhea gives as a number or as bytes. */
const asText = (value) => (Buffer.isBuffer(value) ? `0x${value.toString('hex')}` : String(value ?? ''));

function decoded({ parts, format }) {
    const payload = Buffer.concat(parts);
    return format === 0 ? rheaMessage.decode(payload) : { body: payload };
}

module.exports = { Subscriber };
