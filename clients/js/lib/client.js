// One connection to one of several routers, made again when it is lost. Links outlive it.
'use strict';

const { EventEmitter } = require('node:events');
const rhea = require('rhea');
const { Closed, LinkRefused, OncewireError } = require('./errors.js');
const { Failover } = require('./failover.js');
const { MemoryJournal } = require('./journal.js');
const { Publisher } = require('./publisher.js');
const { Subscriber } = require('./subscriber.js');

const MAX_FRAME_SIZE = 1 << 20;
/** Announced: rhea gives a router up after twice this silence. */
const IDLE_TIME_OUT_MS = 1250;
/** From the first byte to the router's open: a stopped process still takes connections. */
const ATTEMPT_MS = 5000;
const CLOSE_MS = 1000;
const UNAUTHORIZED = 'amqp:unauthorized-access';
const EXACTLY_ONCE = 'topic-exactly-once';

/**
 * A client of a network. Emits `connected` (address) and `disconnected` (why); it connects again by itself.
 */
class Client extends EventEmitter {
    constructor(urls, { containerId, tls = {}, maxFrameSize = MAX_FRAME_SIZE }) {
        super();
        if (!containerId) {
            throw new OncewireError('the client has no container-id', 'publishers and subscribers are resumed by container-id and name',
                'give each process one of its own that stays the same when it is started again');
        }
        this.containerId = containerId;
        this.maxFrameSize = maxFrameSize;
        this._tls = tls;
        this._failover = new Failover(urls);
        this._container = rhea.create_container({ id: containerId });
        this._links = new Set();
        this._connection = undefined;
        this._isOpen = false;
        this._isClosed = false;
        this._timer = undefined;
        this._closing = undefined;
        this._connectSoon();
    }

    /** Opens a publisher of a topic; resolves when a router has granted it. See `Publisher`. */
    async publisher(topic, { name, journal = new MemoryJournal(), window, timeout } = {}) {
        return this._open(new Publisher(this, topic, { name, journal, window, timeout }));
    }

    /** Opens a subscriber; resolves when the subscription is confirmed: what is accepted from now on came here. */
    async subscriber(topic, { name, journal = new MemoryJournal(), prefetch, timeout } = {}) {
        return this._open(new Subscriber(this, topic, { name, journal, prefetch, timeout }));
    }

    /** Suspends all links: the network keeps them for their time-outs. What is not settled resumes by the journals. */
    async close() {
        if (this._isClosed) return;
        this._isClosed = true;
        clearTimeout(this._timer);
        for (const link of [...this._links]) link.suspend();
        const connection = this._connection;
        if (!connection) return;
        await new Promise((resolve) => {
            this._closing = resolve;
            connection.close();
            setTimeout(resolve, CLOSE_MS).unref();
        });
        this._lost(connection, 'closed');
    }

    // --- for links ----------------------------------------------------------------------------------------------------

    /** The connection that links begin sessions on, if there is one. */
    get connection() {
        return this._isOpen ? this._connection : undefined;
    }

    wait(tries) {
        return this._failover.wait(tries);
    }

    /** A link works: so does its router. */
    linkActive() {
        this._failover.succeeded();
    }

    /** This router cannot serve a link: connect to the next one. */
    leave(why) {
        this._failover.failed();
        this._lost(this._connection, why);
    }

    forget(link) {
        this._links.delete(link);
    }

    async _open(link) {
        if (this._isClosed) throw new Closed('the client is closed', 'this program has closed it', 'connect again');
        this._links.add(link);
        if (this._isOpen) link.connected();
        await link.opened;
        return link;
    }

    // --- connecting ---------------------------------------------------------------------------------------------------

    _connectSoon() {
        if (this._isClosed) return;
        const { address, wait } = this._failover.nextTry();
        this._timer = setTimeout(() => this._connect(address), wait);
    }

    _connect(address) {
        const connection = this._container.create_connection({
            ...this._tls,
            host: address.host,
            hostname: address.host,
            port: address.port,
            transport: address.tls ? 'tls' : 'tcp',
            username: address.username,
            password: address.password,
            container_id: this.containerId,
            max_frame_size: this.maxFrameSize,
            idle_time_out: IDLE_TIME_OUT_MS,
            desired_capabilities: [EXACTLY_ONCE],
            reconnect: false,
            tcp_no_delay: true,
        });
        this._connection = connection;
        const lost = (why) => this._lost(connection, why);
        connection.on('connection_open', () => this._opened(connection, address));
        connection.on('connection_error', ({ error }) => {
            if (error?.condition === UNAUTHORIZED) this._refused(error.description || 'no reason given');
            lost(String(error?.description || error?.condition));
        });
        connection.on('connection_close', () => lost('the router closed the connection'));
        connection.on('disconnected', (context) => lost(context.error ? String(context.error.message || context.error) : 'no reason given'));
        connection.on('protocol_error', (error) => lost(String(error)));
        connection.on('error', (error) => lost(String(error?.message || error)));
        this._timer = setTimeout(lost, ATTEMPT_MS, 'no answer in time');
        connection.connect();
    }

    _opened(connection, address) {
        if (connection !== this._connection) return;
        clearTimeout(this._timer);
        this._isOpen = true;
        this.emit('connected', address);
        for (const link of this._links) link.connected();
    }

    _refused(why) {
        this._isClosed = true;
        const error = new LinkRefused('the login was refused', why, 'correct user and password in the addresses', UNAUTHORIZED);
        for (const link of [...this._links]) link.fail(error);
    }

    _lost(connection, why) {
        if (!connection || connection !== this._connection) return;
        clearTimeout(this._timer);
        const wasOpen = this._isOpen;
        this._connection = undefined;
        this._isOpen = false;
        connection._disconnected(); // ends rhea's timers
        connection.socket?.destroy();
        if (!wasOpen) this._failover.failed();
        this._closing?.();
        for (const link of [...this._links]) link.connectionLost();
        if (this._isClosed) return;
        this.emit('disconnected', why);
        this._connectSoon();
    }
}

/**
 * Connects to the first of these routers that answers, now and whenever the connection is lost.
 *
 * Options: `containerId`, which stays the same over starts of this process and belongs to no other; `tls`, options of
 * Node's `tls.connect` for amqps:// addresses; `maxFrameSize`.
 */
function connect(urls, options = {}) {
    return new Client([].concat(urls), options);
}

module.exports = { connect, Client };
