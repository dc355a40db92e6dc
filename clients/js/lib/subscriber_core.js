// A subscriber's unsettled map: rule S-a. No sockets, files or clock.
//
// arrived -> processed by the application -> done, when the journal has it -> settled by the router, forgotten
//
// The journal never has a done entry without every earlier entry of the same session: the network would take those for
// what precedes the subscription (E-2). They are recorded without an outcome, and their bodies come again.
'use strict';

/** In hex: cluster nonce and session in a network tag, which name the stream that a delivery belongs to. */
const SESSION = [2, 22];
const LAZY_FORGETS = 1024;

class Entry {
    constructor(serial, tag) {
        this.serial = serial;
        this.tag = tag; // in hex
        this.attach = 0; // the attach that `id` belongs to
        this.id = undefined;
        this.outcome = null;
        this.isRecorded = false; // the journal has the outcome
        this.isStored = false; // the journal has the tag
        this.isSettled = false;
        this.lacksBody = false; // arrived before a restart, and not done
        this.isCounted = false; // takes a prefetched place of this attach
    }

    get session() {
        return this.tag.slice(...SESSION);
    }
}

class SubscriberCore {
    constructor({ entries, incarnation, prefetch }) {
        this.incarnation = incarnation;
        this._prefetch = prefetch;
        this._serial = 0;
        this._attach = 0;
        this._map = new Map(); // by tag, in order of arrival
        this._unprocessed = new Set();
        this._forgotten = new Set();
        for (const [tag, outcome] of entries) {
            const entry = this._add(tag);
            entry.outcome = outcome;
            entry.isStored = true;
            entry.isRecorded = outcome !== null;
            entry.lacksBody = outcome === null;
        }
        this.lost();
    }

    // --- the link -----------------------------------------------------------------------------------------------------

    /** Begins an attach. Returns the whole map: [tag, recorded outcome or null], in order of arrival. */
    present() {
        this.lost();
        this._presented = [...this._map.values()];
        return this._presented.map((entry) => [entry.tag, entry.isRecorded ? entry.outcome : null]);
    }

    /** The reply came, with all of its map. Returns whether the subscription is another one than before. */
    attached(kept, incarnation) {
        const tags = new Set(kept);
        for (const entry of this._presented) {
            if (tags.has(entry.tag)) this._toResume.add(entry.tag);
            else this._settle(entry); // what is left out is settled
        }
        this._presented = [];
        const isAnother = incarnation !== this.incarnation;
        this.incarnation = incarnation;
        return isAnother;
    }

    /**
     * A whole delivery came, or an aborted one. Returns what to do: `{ deliver: entry }`, `{ answer: entry }` or nothing.
     */
    arrived({ id, tag, isSettled, isResumed, isAborted }) {
        this.received++;
        if (isAborted) return {};
        // What comes settled and is not resumed is new, whatever its tag: it never was in the map.
        if (isSettled && !isResumed) return { deliver: this._take(new Entry(++this._serial, tag), { isSettled }) };
        this._toResume.delete(tag);
        const entry = this._map.get(tag);
        if (!entry) return isResumed ? {} : { deliver: this._take(this._add(tag), { id }) };
        entry.id = id;
        entry.attach = this._attach;
        if (isSettled) this._settle(entry);
        else if (entry.isRecorded) return { answer: entry };
        else if (entry.lacksBody) return { deliver: this._take(entry, { id }) };
        return {};
    }

    /** The router settled these tags. */
    settled(tags) {
        for (const tag of tags) if (this._map.has(tag)) this._settle(this._map.get(tag));
    }

    /** The link is lost: everything stays in the map. */
    lost() {
        this._attach++;
        this._presented = [];
        this._toResume = new Set();
        this.received = 0;
        this._held = 0;
        for (const entry of this._map.values()) entry.isCounted = false;
        for (const entry of this._unprocessed) entry.isCounted = false;
    }

    /**
     * C-3: credit that the router may have had in all on this attach. A place for each delivery that may come ahead, and
     * one for each entry of the reply that is not resumed yet.
     */
    get limit() {
        return this.received + this._prefetch - this._held + this._toResume.size;
    }

    isPresent(entry) {
        return entry.attach === this._attach && !entry.isSettled && entry.id !== undefined;
    }

    // --- the journal --------------------------------------------------------------------------------------------------

    /** The application has processed these, with these outcomes. Returns what is to be written. */
    process(processed) {
        for (const [entry, outcome] of processed) {
            this._unprocessed.delete(entry);
            entry.outcome = outcome;
        }
        const open = processed.map(([entry]) => entry).filter((entry) => !entry.isSettled);
        const entries = [...open, ...this._earlier(open)].sort((a, b) => a.serial - b.serial);
        for (const entry of entries) entry.isStored = true;
        return { entries: entries.map(({ tag, outcome }) => [Buffer.from(tag, 'hex'), outcome]), forgotten: this.takeForgotten() };
    }

    /** What was processed is in the journal. Returns those that are to be answered on this attach. */
    recorded(processed) {
        for (const [entry] of processed) {
            entry.isRecorded = true;
            if (entry.isCounted) this._held--;
            entry.isCounted = false;
            if (entry.isSettled) this._forget(entry);
        }
        return processed.map(([entry]) => entry).filter((entry) => this.isPresent(entry));
    }

    /** Settled tags that the journal still has. */
    takeForgotten() {
        const forgotten = [...this._forgotten].map((tag) => Buffer.from(tag, 'hex'));
        this._forgotten.clear();
        return forgotten;
    }

    /** Forgetting needs no write of its own: the router leaves such tags out. Many are written at last. */
    get hasManyForgotten() {
        return this._forgotten.size >= LAZY_FORGETS;
    }

    /** The subscription was ended: what is not done is dropped, what is done stays for the next one of that name (S-a). */
    ended() {
        this.incarnation = '';
        for (const entry of [...this._map.values()]) if (!entry.isRecorded) this._settle(entry);
        for (const entry of this._unprocessed) this._forget(entry);
        return { incarnation: '', forgotten: this.takeForgotten() };
    }

    // --- helpers ------------------------------------------------------------------------------------------------------

    _add(tag) {
        const entry = new Entry(++this._serial, tag);
        this._map.set(tag, entry);
        return entry;
    }

    _take(entry, { id, isSettled = false }) {
        entry.id = id;
        entry.attach = this._attach;
        entry.isSettled = isSettled;
        entry.lacksBody = false;
        entry.isCounted = true;
        this._held++;
        this._unprocessed.add(entry);
        return entry;
    }

    /** S-a: what arrived before one of these in its session, is not done, and not in the journal yet. */
    _earlier(done) {
        const last = new Map();
        for (const { session, serial } of done) last.set(session, Math.max(serial, last.get(session) || 0));
        return [...this._unprocessed].filter((entry) =>
            !entry.isStored && !entry.isSettled && entry.serial < (last.get(entry.session) || 0));
    }

    /** It leaves the map at once, so that what comes with its tag is another delivery (E-3); it is processed all the same. */
    _settle(entry) {
        entry.isSettled = true;
        if (this._map.get(entry.tag) === entry) this._map.delete(entry.tag);
        if (entry.isRecorded || entry.lacksBody) this._forget(entry);
    }

    _forget(entry) {
        if (entry.isStored && !this._map.has(entry.tag)) this._forgotten.add(entry.tag);
        entry.isStored = false;
    }
}

module.exports = { SubscriberCore };
