// A publisher's unsettled map: what is in it, what goes next, what an outcome changes. No sockets, files or clock.
'use strict';

const TAG_BYTES = 8;

function tagOf(number) {
    const tag = Buffer.alloc(TAG_BYTES);
    tag.writeBigUInt64BE(BigInt(number));
    return tag;
}

/** One message: from `submit` until its outcome is recorded. */
class Message {
    constructor(number, payload) {
        this.number = number;
        this.tag = tagOf(number);
        this.payload = payload;
        this.isHanded = false; // it may have reached a socket
        this.isStored = false;
        this.outcome = undefined;
        this.start = 0; // I-6a: it was sent before this revision
        this.id = undefined; // its delivery-id on the present attach
        this.isSettledByPeer = false;
    }
}

class PublisherCore {
    constructor({ nextNumber, messages, window }) {
        this.nextNumber = nextNumber;
        this._window = window;
        this._messages = new Map(); // by number, in order
        for (const [number, payload] of messages) {
            const message = new Message(number, payload);
            message.isStored = message.isHanded = true; // stored when there was credit for it
            this._messages.set(number, message);
        }
        this._handed = messages.length;
        this._inMap = [];
        this.lost();
    }

    get size() {
        return this._messages.size;
    }

    /** How many new messages may be submitted, with so much credit: what is not sent yet on this attach goes first. */
    room(credit) {
        return Math.min(this._window - this._messages.size, credit - this._unsent);
    }

    submit(payload) {
        const message = new Message(this.nextNumber++, payload);
        this._messages.set(message.number, message);
        this._unsent++;
        return message;
    }

    /** The journal has it: from now on it may be sent. */
    stored(message) {
        message.isStored = true;
        this._queue.push(message);
    }

    /** Begins an attach. Returns the map to present: what may have reached a socket and has no outcome (P-1). */
    present() {
        this.lost();
        this._queue = [...this._messages.values()].filter((message) => message.isStored && !message.outcome);
        this._inMap = this._queue.filter((message) => message.isHanded);
        return this._inMap;
    }

    /** I-6a: [tag, revision] of the last message of the map that was sent before each revision. */
    starts() {
        const newest = new Map();
        for (const { start, tag } of this._inMap) if (start) newest.set(start, tag);
        return [...newest].map(([start, tag]) => [tag, start]);
    }

    /** I-6a: this message and all before it were sent before that revision. */
    started(revision, lastNumber = Infinity) {
        const messages = lastNumber === Infinity ? this._inMap : this._messages.values();
        for (const message of messages) {
            if (message.number > lastNumber) return;
            if (message.isHanded && (!message.start || message.start > revision)) message.start = revision;
        }
    }

    /** The next message to send, in order; undefined while none may go. `bound`: entries that the map may have (C-4). */
    next(bound) {
        const message = this._queue[0];
        if (!message || (!message.isHanded && this._handed >= bound)) return undefined;
        this._queue.shift();
        this._handed += !message.isHanded;
        this._unsent--;
        message.isHanded = true;
        return message;
    }

    /** The router stated an outcome of a tag; returns the message if that is news. */
    decide(tag, outcome, isSettled) {
        const message = tag.length === TAG_BYTES ? this._messages.get(Number(tag.readBigUInt64BE())) : undefined;
        if (!message || message.outcome) return undefined;
        message.outcome = outcome;
        message.isSettledByPeer = isSettled;
        return message;
    }

    /** The outcome is in the journal. */
    recorded(message) {
        this._messages.delete(message.number);
        this._handed -= message.isHanded;
    }

    /** the session has expired. Returns what has no outcome and may have been sent; all else waits for the next one. */
    expire() {
        this.lost();
        for (const message of this._messages.values()) message.start = 0;
        return [...this._messages.values()].filter((message) => message.isHanded && !message.outcome);
    }

    /** The link is lost: everything stays in the map. */
    lost() {
        this._queue = [];
        this._inMap = [];
        this._unsent = 0;
        for (const message of this._messages.values()) {
            message.id = undefined;
            this._unsent += !message.outcome;
        }
    }
}

module.exports = { PublisherCore, tagOf, TAG_BYTES };
