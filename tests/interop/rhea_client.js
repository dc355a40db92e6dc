// A stock client of rhea, as its own examples are written: reconnects, re-sends what was not accepted.
//
//     node rhea_client.js RHEA_FOLDER send|receive URL,URL TOPIC COUNT OUTPUT
//
// With URLs ws:// or wss:// it connects by WebSocket, with the package ws beside rhea's folder.
// Writes one JSON line per event to OUTPUT. A sender ends when messages number 1 to COUNT were accepted, a receiver when
// it is killed. They know nothing of unsettled maps, capabilities or sessions.
'use strict';

const fs = require('fs');
const [rheaFolder, role, urls, topic, countText, path] = process.argv.slice(2);
const container = require(rheaFolder).create_container({ id: `stock-rhea-${role}` });
const count = Number(countText);
const output = fs.openSync(path, 'a');
const WINDOW = 300;

const write = (event) => fs.writeSync(output, JSON.stringify(event) + '\n');
const places = urls.split(',').map((url) => {
    if (/^wss?:/.test(url)) return container.websocket_connect(require(`${rheaFolder}/../ws`))(url, ['amqp']);
    const { hostname, port } = new URL(url.replace('amqp:', 'http:'));
    return () => ({ host: hostname, port: Number(port), transport: 'tcp' });
});
let attempt = 0;
const connection = container.connect({
    connection_details: () => places[attempt++ % places.length](),
    idle_time_out: 4000,
    initial_reconnect_delay: 50,
    max_reconnect_delay: 500,
});
// Without a listener rhea throws on errors that the reconnect heals.
container.on('connection_error', () => {});
container.on('connection_close', () => {});
container.on('error', () => {});
container.on('disconnected', () => write({ disconnected: true }));

if (role === 'send') {
    const unaccepted = new Map();
    let repeat = [];
    let next = 1;
    let accepted = 0;
    const sender = connection.open_sender(topic);
    const send = () => {
        while (sender.sendable() && unaccepted.size < WINDOW) {
            const number = repeat.length ? repeat.shift() : next <= count ? next++ : 0;
            if (!number) return;
            const delivery = sender.send({ message_id: `${number}`, body: `row ${number}` });
            unaccepted.set(delivery, number);
            write({ sent: number });
        }
    };
    container.on('sendable', send);
    container.on('disconnected', () => {
        repeat = [...unaccepted.values(), ...repeat].sort((a, b) => a - b);
        unaccepted.clear();
    });
    container.on('accepted', (context) => {
        const number = unaccepted.get(context.delivery);
        if (number === undefined) return;
        unaccepted.delete(context.delivery);
        accepted++;
        write({ accepted: number });
        if (accepted === count) connection.close(); else send();
    });
    container.on('released', (context) => {
        const number = unaccepted.get(context.delivery);
        if (number === undefined) return;
        unaccepted.delete(context.delivery);
        repeat.push(number);
        write({ released: number });
    });
} else {
    // A subscription that outlives its router is asked for the way AMQP 1.0 has it: a durable terminus.
    const source = { address: topic, durable: 2, expiry_policy: 'never' };
    connection.open_receiver({ source, name: 'stock-subscription', credit_window: WINDOW });
    container.on('receiver_open', () => write({ attached: true }));
    container.on('message', (context) => {
        const number = Number(context.message.message_id.split('/').pop());
        const body = context.message.body;
        const annotations = context.message.message_annotations || {};
        write({
            received: number,
            body: typeof body === 'string' ? body : body.content.toString(),
            tag: Buffer.from(annotations['x-opt-topic-tag'] || []).toString('hex'),
            redelivered: annotations['x-opt-topic-redelivered'] === true,
            session: Number(annotations['x-opt-topic-session'] || 0),
        });
    });
}
