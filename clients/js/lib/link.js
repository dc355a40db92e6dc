// What publishers and subscribers have in common: a link that is attached again and again.
'use strict';

const { EventEmitter } = require('node:events');
const { types } = require('rhea');
const { Closed, LinkRefused, LinkStolen } = require('./errors.js');
const { Steals, endOf, EXPIRED, DELETED, STOLEN, ELSEWHERE, REFUSED } = require('./failover.js');
const { LinkSession } = require('./session.js');

const EXACTLY_ONCE = 'topic-exactly-once';
const ECHO = 'x-opt-topic-echo';
const ATTACH_OVERHEAD = 512;
const MAP_ENTRY = 48;
/** Refusals in a row before another router is tried: moving takes all links along. */
const REFUSALS_BEFORE_MOVING = 3;
/** A router answers a close when etcd has deleted the key (E-8, I-8). */
const DETACH_MS = 10_000;
const UNSETTLED_STATE = 2;
const OUTCOMES = ['amqp:accepted:list', 'amqp:rejected:list', 'amqp:released:list', 'amqp:modified:list'];

/** Emits `active`, when the link works, and `interrupted` ({ condition, description }), when it does not. */
class Link extends EventEmitter {
    constructor(client, topic, { name, journal, timeout }) {
        super();
        if (!name) {
            throw new LinkRefused('the link has no name', 'links are resumed by container-id and name', 'give it a name that stays the same');
        }
        this.topic = topic;
        this.name = name;
        this._client = client;
        this._journal = journal;
        this._timeout = timeout;
        this._session = undefined;
        this._refusals = 0;
        this._steals = new Steals();
        this._retry = undefined;
        this._failure = undefined;
        this._leaving = undefined;
        this.opened = new Promise((resolve, reject) => {
            this._open = resolve;
            this._refuse = reject;
        });
        this.opened.catch(() => {}); // whoever awaits it gets the error
    }

    // --- what the two kinds do differently --------------------------------------------------------------------------
    // _attach(session), _attached(reply), onFlow(flow), onDelivery, onDisposition, _isOver(), _expired(), _failed(error)
    // and `_busy`: a promise while something is being recorded that decides what is in the map.

    /** Entries that the map may have in a frame of both ends (C-4). */
    get _mapBound() {
        const bytes = Math.min(this._session.frameSize, this._client.maxFrameSize);
        return Math.max(0, Math.floor((bytes - ATTACH_OVERHEAD) / MAP_ENTRY));
    }

    _terminus(fields) {
        return {
            address: this.topic,
            durable: UNSETTLED_STATE,
            expiry_policy: 'link-detach',
            timeout: this._timeout,
            capabilities: ['topic'],
            ...fields,
        };
    }

    /** answer the router's echo with the same value, and with nothing else. */
    _answerEcho({ properties }) {
        const echo = properties[ECHO];
        if (echo !== undefined && echo !== null) this._session.flow({ [ECHO]: types.wrap_ulong(echo) });
    }

    // --- attaching ----------------------------------------------------------------------------------------------------

    connected() {
        this._attachSoon(0);
    }

    connectionLost() {
        this._session?.over({ condition: '', description: 'the connection is lost', info: {} });
    }

    _attachSoon(wait) {
        clearTimeout(this._retry);
        this._retry = setTimeout(() => this._begin(), wait);
    }

    async _begin() {
        await this._busy;
        if (this._session || this._failure || this._leaving || !this._client.connection) return;
        const session = (this._session = new LinkSession(this._client.connection, {
            onBegun: () => this._guard(() => this._attach(session)),
            onAttached: (reply) => this._guard(() => this._onAttached(reply)),
            onFlow: (flow) => this._guard(() => this.onFlow(flow)),
            onDelivery: (delivery) => this._guard(() => this.onDelivery(delivery)),
            onDisposition: (...args) => this._guard(() => this.onDisposition(...args)),
            onEnded: (error) => this._onEnded(error),
        }));
    }

    /** A fault in our own code must end the link, and not be swallowed by rhea's reader. */
    _guard(work) {
        if (this._failure) return;
        try {
            work();
        } catch (error) {
            this.fail(error);
        }
    }

    _onAttached(reply) {
        if (!reply.capabilities.includes(EXACTLY_ONCE)) {
            return this.fail(new LinkRefused(`the link ${this.name} was not granted`, 'the router does not offer topic-exactly-once',
                'connect to an Oncewire router'));
        }
        this._attached(reply);
    }

    _isActive() {
        this._refusals = 0;
        this._client.linkActive();
        this._open();
        this.emit('active');
    }

    _onEnded(error) {
        this._session = undefined;
        this._isOver();
        if (this._leaving) return this._leaving(error);
        if (this._failure) return;
        this.emit('interrupted', error);
        if (this._client.connection) this._afterDetach(error);
    }

    _afterDetach(error) {
        const end = endOf(error);
        this._refusals++;
        if (end === REFUSED) return this.fail(this._refusal(error));
        if (end === STOLEN && this._steals.isTooMany(Date.now())) return this.fail(this._stolen(error));
        if (end === ELSEWHERE && (this._refusals >= REFUSALS_BEFORE_MOVING || error.condition.endsWith('redirect'))) {
            this._refusals = 0;
            return this._client.leave(error.description);
        }
        if (end === EXPIRED || end === DELETED) this._expired();
        const isNew = (end === EXPIRED || end === DELETED) && this._refusals < REFUSALS_BEFORE_MOVING;
        this._attachSoon(isNew ? 0 : this._client.wait(this._refusals));
    }

    _refusal({ condition, description }) {
        return new LinkRefused(`the link ${this.name} was refused`, `${condition}: ${description || 'no reason given'}`,
            'correct the topic, the name or the permissions', condition);
    }

    _stolen({ condition, description }) {
        return new LinkStolen(`the link ${this.name} was stolen repeatedly`,
            `another process attaches it as container-id ${this._client.containerId} (${description})`,
            'give each process a container-id of its own', condition);
    }

    // --- leaving ------------------------------------------------------------------------------------------------------

    /** Whoever waits, and whoever comes later, gets the error. */
    fail(error) {
        if (this._failure) return;
        this._failure = error;
        clearTimeout(this._retry);
        this._client.forget(this);
        this._session?.detach(false);
        this._refuse(error);
        this._failed(error);
    }

    /** Ends here; the network keeps the link for its time-out, and the next process with the journal goes on. */
    suspend() {
        this.fail(new Closed(`the link ${this.name} is closed`, 'this program has closed it', 'open it again'));
    }

    /** Ends the terminus, too. Resolves when the router has answered; rejects where it has not: nothing is ended then. */
    async _close() {
        if (this._failure) throw this._failure;
        if (!this._session) throw new Closed(`the link ${this.name} was not ended`, 'there is no connection', 'try again');
        const error = await new Promise((resolve) => {
            this._leaving = resolve;
            this._session.detach(true);
            setTimeout(resolve, DETACH_MS, { condition: 'no answer', description: '' }).unref();
        });
        this.suspend();
        if (error.condition) throw this._refusal(error);
    }
}

module.exports = { Link, EXACTLY_ONCE, ECHO, OUTCOMES };
