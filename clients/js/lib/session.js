// One AMQP session with one link, on a connection of rhea.
//
// rhea has no place for what resuming needs: it attaches with no map, knows neither `resume` nor `aborted`, sends no
// properties in flows, and joins dispositions of unlike outcomes. So this session stands in the place of rhea's own and
// states performatives field by field; sockets, logins, heartbeats and encoding are rhea's.
'use strict';

const { types } = require('rhea');
const frames = require('rhea/lib/frames.js');
const terminus = require('rhea/lib/terminus.js');

const INCOMING_WINDOW = 2048;
const UNLIMITED = 0xffffffff;
/** Of a transfer's performative beside its tag. */
const TRANSFER_OVERHEAD = 64;
const MIN_FRAME = 512;
/** Fields of an attach and a flow that are read as they came. */
const UNSETTLED = 7;
const PROPERTIES_OF_FLOW = 10;

/**
 * Calls its handler with what comes from the router: `onBegun()`, `onAttached(reply)`, `onFlow(flow)`, `onDelivery(delivery)`,
 * `onDisposition(tags, state, settled)` and, once, `onEnded({ condition, description, info })`.
 */
class LinkSession {
    constructor(connection, handler) {
        this._connection = connection;
        this._handler = handler;
        this._isOver = false;
        this._detachSent = false;
        this._ids = new Map(); // unsettled deliveries of this link: id -> tag
        this._outgoing = []; // transfers that wait for the session's window
        this._nextOutgoing = 0;
        this._nextDelivery = 0;
        this._remoteWindow = 0;
        this._nextIncoming = 0;
        this._incomingLeft = INCOMING_WINDOW;
        this._arriving = undefined;
        this.deliveryCount = 0;
        this.credit = 0;
        this._channel = 0;
        while (connection.local_channel_map[this._channel]) this._channel++;
        connection.local_channel_map[this._channel] = this;
        this._output(frames.begin({ next_outgoing_id: 0, incoming_window: INCOMING_WINDOW, outgoing_window: UNLIMITED }));
    }

    /** Bytes that a frame to the router may have. */
    get frameSize() {
        return Math.max(MIN_FRAME, this._connection.remote.open.max_frame_size || UNLIMITED);
    }

    // --- to the router -----------------------------------------------------------------------------------------

    /** `unsettled`: an encoded map. */
    attach({ source, target, unsettled, ...fields }) {
        this._isReceiver = fields.role;
        const attach = frames.attach({ handle: 0, ...fields });
        attach.source = terminus.source(source).described();
        attach.target = terminus.target(target).described();
        attach.value[UNSETTLED] = unsettled;
        this._output(attach);
    }

    /** A flow of the link: what it has, with these properties (name to typed value). */
    flow(properties, credit = this.credit) {
        this.credit = credit;
        const flow = this._sessionFlow({ handle: 0, delivery_count: this.deliveryCount >>> 0, link_credit: credit });
        if (properties) flow.value[PROPERTIES_OF_FLOW] = types.wrap_symbolic_map(properties);
        this._output(flow);
    }

    /** Sends a new delivery, and takes its credit. */
    transfer(tag, payload) {
        const id = this._nextDelivery++;
        const size = this.frameSize - TRANSFER_OVERHEAD - tag.length;
        this._ids.set(id, tag);
        this.credit--;
        this.deliveryCount++;
        for (let start = 0; start === 0 || start < payload.length; start += size) {
            const more = start + size < payload.length;
            const named = start === 0 ? { delivery_id: id >>> 0, delivery_tag: tag, message_format: 0, settled: false } : {};
            this._outgoing.push([{ handle: 0, ...named, more }, payload.subarray(start, start + size)]);
        }
        this._sendWaiting();
        return id;
    }

    /** States the same of these deliveries, in as few frames as their ids allow. */
    dispose(ids, state, settled) {
        const sorted = [...ids].sort((a, b) => a - b);
        for (let at = 0; at < sorted.length; ) {
            const first = sorted[at];
            let last = first;
            while (sorted[++at] === last + 1) last++;
            this._output(frames.disposition({ role: this._isReceiver, first, last, settled, state }));
        }
        if (settled) for (const id of ids) this._ids.delete(id);
    }

    /** `closed`: the terminus ends with the link; else the network keeps it. */
    detach(closed) {
        if (this._isOver || this._detachSent) return;
        this._detachSent = true;
        this._output(frames.detach({ handle: 0, closed }));
    }

    /** The connection is lost, or this session is over. */
    over(error) {
        if (this._isOver) return;
        this._isOver = true;
        this._handler.onEnded(error);
    }

    // --- from the router ---------------------------------------------------------------------------------------

    on_begin({ performative }) {
        this._nextIncoming = performative.next_outgoing_id;
        this._remoteWindow = performative.incoming_window;
        this._handler.onBegun();
    }

    on_attach({ performative }) {
        const source = terminus.unwrap(performative.source);
        const target = terminus.unwrap(performative.target);
        if (!(this._isReceiver ? source : target)) return; // a detach with the reason follows
        if (this._isReceiver) this.deliveryCount = performative.initial_delivery_count || 0;
        this._handler.onAttached({
            source,
            capabilities: [].concat(performative.offered_capabilities || []),
            properties: performative.properties || {},
            receiverSettlesSecond: performative.rcv_settle_mode === 1,
            maxMessageSize: Number(performative.max_message_size || 0),
            unsettled: performative.value[UNSETTLED],
            isIncomplete: Boolean(performative.incomplete_unsettled),
        });
    }

    on_flow({ performative }) {
        this._remoteWindow = (performative.next_incoming_id || 0) + performative.incoming_window - this._nextOutgoing;
        this._sendWaiting();
        if (performative.handle === null || performative.handle === undefined) {
            if (performative.echo) this._output(this._sessionFlow({}));
            return;
        }
        if (!this._isReceiver) this.credit = (performative.delivery_count || 0) + performative.link_credit - this.deliveryCount;
        this._handler.onFlow({
            drain: Boolean(performative.drain),
            properties: performative.properties || {},
            raw: performative.value[PROPERTIES_OF_FLOW],
        });
    }

    on_transfer({ performative, payload }) {
        this._nextIncoming++;
        this._incomingLeft--;
        if (this._incomingLeft < INCOMING_WINDOW / 2) this._output(this._sessionFlow({}));
        const delivery = (this._arriving ??= {
            id: performative.delivery_id,
            tag: performative.delivery_tag,
            format: performative.message_format || 0,
            isResumed: Boolean(performative.resume),
            isSettled: false,
            isAborted: false,
            parts: [],
        });
        if (performative.settled) delivery.isSettled = true;
        if (payload) delivery.parts.push(payload);
        if (performative.more && !performative.aborted) return;
        this._arriving = undefined;
        this.deliveryCount++;
        this.credit--;
        delivery.isAborted = Boolean(performative.aborted);
        if (!delivery.isSettled && !delivery.isAborted) this._ids.set(delivery.id, delivery.tag);
        this._handler.onDelivery(delivery);
    }

    on_disposition({ performative }) {
        if (performative.role === this._isReceiver) return; // not about this link's deliveries
        const named = this._named(performative.first, performative.last ?? performative.first);
        if (performative.settled) for (const [id] of named) this._ids.delete(id);
        this._handler.onDisposition(named, performative.state, Boolean(performative.settled));
    }

    on_detach({ performative }) {
        if (!this._detachSent) this._output(frames.detach({ handle: 0, closed: Boolean(performative.closed) }));
        this._detachSent = true;
        this._end();
        this.over(described(performative.error));
    }

    on_end({ channel, performative }) {
        this._end();
        delete this._connection.local_channel_map[this._channel];
        delete this._connection.remote_channel_map[channel];
        this.over(described(performative.error));
    }

    // --- what rhea's connection asks of a session ---------------------------------------------------------------------

    _process() {}

    _disconnect() {}

    _reconnect() {}

    // --- frames -------------------------------------------------------------------------------------------------------

    /** The unsettled deliveries, [id, tag], that a range names. */
    _named(first, last) {
        if (last - first > this._ids.size) return [...this._ids].filter(([id]) => id >= first && id <= last);
        const named = [];
        for (let id = first; id <= last; id++) if (this._ids.has(id)) named.push([id, this._ids.get(id)]);
        return named;
    }

    _end() {
        if (this._endSent) return;
        this._endSent = true;
        this._output(frames.end({}));
    }

    _sessionFlow(fields) {
        this._incomingLeft = INCOMING_WINDOW;
        return frames.flow({
            next_incoming_id: this._nextIncoming >>> 0,
            incoming_window: INCOMING_WINDOW,
            next_outgoing_id: this._nextOutgoing >>> 0,
            outgoing_window: UNLIMITED,
            ...fields,
        });
    }

    _sendWaiting() {
        while (this._remoteWindow > 0 && this._outgoing.length) {
            const [transfer, payload] = this._outgoing.shift();
            this._remoteWindow--;
            this._nextOutgoing++;
            this._output(frames.transfer(transfer), payload);
        }
    }

    _output(performative, payload) {
        if (this._isOver) return;
        const { socket } = this._connection;
        if (!this._isCorked) { // the frames of one turn are one write
            this._isCorked = true;
            socket.cork();
            process.nextTick(() => {
                this._isCorked = false;
                socket.uncork();
            });
        }
        this._connection._write_frame(this._channel, performative, payload);
    }
}

function described(error) {
    if (!error) return { condition: '', description: '', info: {} };
    return { condition: String(error.condition), description: error.description || '', info: error.info || {} };
}

module.exports = { LinkSession };
