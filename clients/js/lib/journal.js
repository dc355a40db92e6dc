// What has to outlive the process: a publisher's messages without an outcome, a subscriber's unsettled map.
//
// A journal is any object with `publisher(name)`, `subscriber(name)`, `write(record)` and `close()`. `write` resolves
// when the record is durable, and records are durable in the order of the calls. A record is one of:
//
//     { link: 'P:name', stored: [[number, payload]], decided: [[number, outcome]], forgotten: [number] }
//     { link: 'S:name', entries: [[tag, outcome or null]], forgotten: [tag], incarnation: text }
//
// with payloads and tags as Buffers. All parts are optional but `link`.
'use strict';

const fs = require('node:fs/promises');
const net = require('node:net');
const path = require('node:path');
const zlib = require('node:zlib');
const { createHash } = require('node:crypto');
const { JournalError } = require('./errors.js');

const COMPACT_BYTES = 1 << 20;
/** The file is written anew when it is this many times as large as what still matters. */
const COMPACT_RATIO = 4;
const CHECKSUM = 8;

/** What the records written so far amount to. */
class JournalState {
    constructor() {
        this.publishers = new Map();
        this.subscribers = new Map();
    }

    publisher(name) {
        if (!this.publishers.has(name)) this.publishers.set(name, { nextNumber: 1, messages: new Map(), outcomes: new Map() });
        return this.publishers.get(name);
    }

    subscriber(name) {
        if (!this.subscribers.has(name)) this.subscribers.set(name, { incarnation: '', entries: new Map() });
        return this.subscribers.get(name);
    }

    apply(record) {
        const name = record.link.slice(2);
        if (record.link.startsWith('P:')) this._applyPublisher(this.publisher(name), record);
        else this._applySubscriber(this.subscriber(name), record);
    }

    _applyPublisher(state, { nextNumber, stored = [], decided = [], forgotten = [] }) {
        if (nextNumber) state.nextNumber = nextNumber;
        for (const [number, payload] of stored) {
            state.messages.set(number, payload);
            state.nextNumber = Math.max(state.nextNumber, number + 1);
        }
        for (const [number, outcome] of decided) {
            state.messages.delete(number);
            if (outcome.kind !== 'accepted') state.outcomes.set(number, outcome);
        }
        for (const number of forgotten) state.outcomes.delete(number);
    }

    _applySubscriber(state, { entries = [], forgotten = [], incarnation }) {
        for (const tag of forgotten) state.entries.delete(tag.toString('hex'));
        for (const [tag, outcome] of entries) state.entries.set(tag.toString('hex'), outcome);
        if (incarnation !== undefined) state.incarnation = incarnation;
    }

    /** Records that amount to the same. */
    *records() {
        for (const [name, { nextNumber, messages, outcomes }] of this.publishers) {
            yield { link: `P:${name}`, nextNumber, stored: [...messages], decided: [...outcomes] };
        }
        for (const [name, { incarnation, entries }] of this.subscribers) {
            yield { link: `S:${name}`, incarnation, entries: [...entries].map(([tag, outcome]) => [Buffer.from(tag, 'hex'), outcome]) };
        }
    }
}

const asText = (buffer) => buffer.toString('base64');
const asBytes = (text) => Buffer.from(text, 'base64');
const map = (values, convert) => values && values.map(convert);
const first = (convert) => ([head, tail]) => [convert(head), tail];
const second = (convert) => ([head, tail]) => [head, convert(tail)];

/** A record with its bytes as text, or the other way round: JSON has no bytes. */
function converted(record, convert) {
    if (record.link.startsWith('P:')) return { ...record, stored: map(record.stored, second(convert)) };
    return { ...record, entries: map(record.entries, first(convert)), forgotten: map(record.forgotten, convert) };
}

/** The records that become durable together: of a line that was cut off, none counts. */
function toLine(records) {
    const text = JSON.stringify(records.map((record) => converted(record, asText)));
    return `${zlib.crc32(text).toString(16).padStart(CHECKSUM, '0')} ${text}\n`;
}

function fromLine(line) {
    const text = line.slice(CHECKSUM + 1);
    if (parseInt(line.slice(0, CHECKSUM), 16) !== zlib.crc32(text)) return undefined;
    return JSON.parse(text).map((record) => converted(record, asBytes));
}

/** A journal that ends with the process: links resume at other routers, and not in another process. */
class MemoryJournal {
    constructor() {
        this._state = new JournalState();
    }

    publisher(name) {
        return this._state.publisher(name);
    }

    subscriber(name) {
        return this._state.subscriber(name);
    }

    async write(record) {
        this._state.apply(record);
    }

    async close() {}
}

/**
 * A journal in one file, for any number of links of one process. Records that are written at the same time are
 * one line with a checksum, and are made durable together (fdatasync).
 */
class FileJournal {
    /**
     * Opens the file, or creates it. A last line that was cut off by a crash is dropped: what it said has had no effect.
     * Throws JournalError where another process has it open, or where it is damaged.
     */
    static async open(file) {
        const journal = new FileJournal(path.resolve(file));
        journal._lock = await lockOf(journal._path);
        try {
            await journal._read();
            await journal._compact();
        } catch (error) {
            journal._lock?.close();
            throw asJournalError(error, journal._path);
        }
        return journal;
    }

    constructor(file) {
        this._path = file;
        this._state = new JournalState();
        this._waiting = [];
        this._flushing = undefined;
        this._failure = undefined;
    }

    /** What is recorded of a publisher: `nextNumber`, `messages` (number to payload), `outcomes` that nobody has seen. */
    publisher(name) {
        return this._state.publisher(name);
    }

    /** What is recorded of a subscriber: `incarnation`, `entries` (tag in hex to outcome or null), in order of arrival. */
    subscriber(name) {
        return this._state.subscriber(name);
    }

    /** Resolves when the record, and all before it, are durable. After a failure every call rejects: open it again. */
    write(record) {
        return new Promise((resolve, reject) => {
            if (this._failure) return reject(this._failure);
            this._waiting.push({ record, resolve, reject });
            this._flushing ??= this._flush();
        });
    }

    async close() {
        await this._flushing;
        this._failure ??= new JournalError(`the journal ${this._path} is closed`, 'this program has closed it', 'open it again');
        await this._handle?.close();
        this._lock?.close();
        this._handle = this._lock = undefined;
    }

    async _flush() {
        let batch = [];
        try {
            while (await nextTurn(), this._waiting.length) {
                batch = this._waiting.splice(0);
                await this._append(toLine(batch.map(({ record }) => record)));
                for (const { record } of batch) this._state.apply(record);
                for (const { resolve } of batch) resolve();
                batch = [];
                if (this._size > this._compactAt) await this._compact();
            }
        } catch (error) {
            this._failure = asJournalError(error, this._path);
            for (const { reject } of [...batch, ...this._waiting.splice(0)]) reject(this._failure);
        }
        this._flushing = undefined;
    }

    async _append(text) {
        await this._handle.appendFile(text);
        await this._handle.datasync();
        this._size += Buffer.byteLength(text);
    }

    async _read() {
        let text = '';
        try {
            text = await fs.readFile(this._path, 'utf8');
        } catch (error) {
            if (error.code !== 'ENOENT') throw error;
        }
        const lines = text.split('\n');
        lines.pop(); // what follows the last line feed: nothing, or a line that was cut off
        lines.forEach((line, at) => {
            const records = fromLine(line);
            if (records) for (const record of records) this._state.apply(record);
            else if (at < lines.length - 1) throw damaged(this._path, at + 1);
        });
    }

    /** Writes a new file with what still matters, and puts it in the place of the old one. */
    async _compact() {
        const fresh = `${this._path}.new`;
        const text = toLine([...this._state.records()]);
        const handle = await fs.open(fresh, 'w');
        await handle.appendFile(text);
        await handle.sync();
        await fs.rename(fresh, this._path);
        await syncFolder(path.dirname(this._path));
        await this._handle?.close();
        this._handle = handle;
        this._size = Buffer.byteLength(text);
        this._compactAt = Math.max(COMPACT_BYTES, COMPACT_RATIO * this._size);
    }
}

const nextTurn = () => new Promise(setImmediate);

async function syncFolder(folder) {
    if (process.platform === 'win32') return; // it has no handle of a folder
    const handle = await fs.open(folder, 'r');
    try {
        await handle.sync();
    } finally {
        await handle.close();
    }
}

function damaged(file, line) {
    return new JournalError(`the journal ${file} cannot be read`, `line ${line} is damaged`,
        'restore the file; without it, what this process had under way is lost or doubled');
}

function asJournalError(error, file) {
    if (error instanceof JournalError) return error;
    return new JournalError(`the journal ${file} failed`, error.message, 'correct the cause and start the process again');
}

/** One process at a time, by a name that the system frees when the process ends. Undefined on a system without such names. */
async function lockOf(file) {
    const name = `oncewire-journal-${createHash('sha256').update(file).digest('hex')}`;
    const address = { linux: `\0${name}`, win32: `\\\\.\\pipe\\${name}` }[process.platform];
    if (!address) return undefined;
    const server = net.createServer();
    server.unref();
    await new Promise((resolve, reject) => {
        server.once('listening', resolve);
        server.once('error', (error) => reject(error.code === 'EADDRINUSE'
            ? new JournalError(`the journal ${file} is in use`, 'another process has it open', 'end that process, or use another file')
            : asJournalError(error, file)));
        server.listen(address);
    });
    return server;
}

module.exports = { FileJournal, MemoryJournal, JournalState };
