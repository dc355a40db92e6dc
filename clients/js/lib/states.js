// Outcomes and unsettled maps in AMQP's encoding. rhea reads the keys of a map as text; tags are bytes.
'use strict';

const { types, message } = require('rhea');

const KINDS = { 0x24: 'accepted', 0x25: 'rejected', 0x26: 'released', 0x27: 'modified' };

/** A delivery state that was received: `{ kind, condition?, description? }`, undefined while it is no outcome. */
function outcomeOf(state) {
    const kind = state && state.descriptor && KINDS[Number(state.descriptor.value)];
    if (!kind) return undefined;
    if (kind !== 'rejected') return { kind };
    const error = message.unwrap_outcome(state).error;
    return error ? { kind, condition: error.condition, description: error.description || '' } : { kind };
}

/** The delivery state of an outcome; `bare` as it stands in a map, where an error has no room (C-4). */
function stateOf(outcome, bare = false) {
    if (outcome === null) return types.Null();
    if (outcome.kind === 'accepted') return message.accepted().described();
    if (bare || !outcome.condition) return message.rejected({}).described();
    return message.rejected({ error: { condition: outcome.condition, description: outcome.description } }).described();
}

/** An unsettled map for the wire, of `Map(tag in hex, outcome or null)`. */
function encodedMap(entries) {
    return types.wrap_map_as_map(new Map([...entries].map(([tag, outcome]) => [Buffer.from(tag, 'hex'), stateOf(outcome, true)])));
}

/** The tags (hex) of an unsettled map as it was received, or undefined where it is none. */
function tagsOf(typed) {
    if (!typed || !Array.isArray(typed.value)) return undefined;
    return typed.value.filter((_, at) => at % 2 === 0).map((key) => key.value.toString('hex'));
}

/** The value of a symbol in a map as it was received, undecoded. */
function rawValue(typed, name) {
    const values = (typed && Array.isArray(typed.value) && typed.value) || [];
    const at = values.findIndex((key, index) => index % 2 === 0 && key.value === name);
    return at < 0 ? undefined : values[at + 1];
}

module.exports = { outcomeOf, stateOf, encodedMap, tagsOf, rawValue };
