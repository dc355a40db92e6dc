// Which router to try next, when, and what the end of a link means.
'use strict';

const { OncewireError } = require('./errors.js');

const PORTS = { 'amqp:': 5672, 'amqps:': 5671 };
const BACK_OFF_FIRST_MS = 100;
const BACK_OFF_CAP_MS = 5000;
const STEALS_ALLOWED = 3;
const STEAL_WINDOW_MS = 60_000;

function addressOf(url) {
    let parsed;
    try {
        parsed = new URL(url);
    } catch {
        parsed = { protocol: '' };
    }
    if (!(parsed.protocol in PORTS) || !parsed.hostname) {
        throw new OncewireError(`${JSON.stringify(url.replace(/\/\/.*@/, '//...@'))} is no address of a router`,
            'it has another form', 'write amqp://HOST:PORT, amqps:// for TLS, with USER:PASSWORD@ before the host for a login');
    }
    const host = parsed.hostname.replace(/^\[|\]$/g, '');
    const isLocal = host === 'localhost' || host === '::1' || host.startsWith('127.');
    const tls = parsed.protocol === 'amqps:';
    if (parsed.password && !tls && !isLocal) {
        throw new OncewireError(`${host} cannot be logged in to`, 'the password would be sent in the clear', 'use amqps://');
    }
    return {
        host,
        port: Number(parsed.port) || PORTS[parsed.protocol],
        tls,
        username: decodeURIComponent(parsed.username) || undefined,
        password: decodeURIComponent(parsed.password) || undefined,
    };
}

/** The addresses as a ring, with waits that double with each round and are random below that. */
class Failover {
    constructor(urls) {
        this._addresses = urls.map(addressOf);
        if (!this._addresses.length) throw new OncewireError('no router is named', 'the list of addresses is empty', 'give at least one');
        this._next = 0;
        this._failures = 0;
    }

    /** Where to connect now, and how long to wait before. */
    nextTry() {
        const address = this._addresses[this._next++ % this._addresses.length];
        return { address, wait: this._failures ? this.wait(Math.floor(this._failures / this._addresses.length)) : 0 };
    }

    wait(rounds) {
        return Math.random() * Math.min(BACK_OFF_CAP_MS, BACK_OFF_FIRST_MS * 2 ** Math.min(rounds, 16));
    }

    failed() {
        this._failures++;
    }

    succeeded() {
        this._failures = 0;
    }
}

const AGAIN = 'again'; // attach again after a pause
const EXPIRED = 'expired'; // the publisher's session has expired
const DELETED = 'deleted'; // the subscription was deleted (E-7); the next attach creates another one
const STOLEN = 'stolen'; // another attach of this container-id and name has it
const ELSEWHERE = 'elsewhere'; // this router cannot serve it
const REFUSED = 'refused'; // trying again changes nothing

const ENDS = {
    '': AGAIN,
    'oncewire:session-expired': EXPIRED,
    'amqp:resource-deleted': DELETED,
    'amqp:link:stolen': STOLEN,
    'amqp:link:detach-forced': AGAIN,
    'amqp:link:redirect': ELSEWHERE,
    'amqp:connection:forced': ELSEWHERE,
    'amqp:resource-limit-exceeded': ELSEWHERE,
    'amqp:internal-error': ELSEWHERE,
    'amqp:resource-locked': AGAIN,
    'amqp:illegal-state': AGAIN,
    'amqp:link:transfer-limit-exceeded': AGAIN,
    'amqp:session:window-violation': AGAIN,
};

/** What a link does after a detach or an end. */
function endOf({ condition, info }) {
    if (info['x-opt-topic-same-everywhere'] === true) return AGAIN;
    return ENDS[condition] || REFUSED;
}

/** Counts how often a link was stolen: two processes of one name would steal from each other for ever. */
class Steals {
    constructor() {
        this._times = [];
    }

    isTooMany(now) {
        this._times = [...this._times.filter((time) => now - time < STEAL_WINDOW_MS), now];
        return this._times.length >= STEALS_ALLOWED;
    }
}

module.exports = { Failover, Steals, endOf, AGAIN, EXPIRED, DELETED, STOLEN, ELSEWHERE, REFUSED };
