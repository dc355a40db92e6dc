// Answers with rhea: one sender without an address for the answers to everybody.
//
//     node examples/request_reply/rhea_responder.js amqp://127.0.0.1:5672,amqp://127.0.0.1:5673
'use strict';

const container = require(process.env.RHEA || 'rhea').create_container();
const places = process.argv[2].split(',').map((url) => new URL(url.replace('amqp:', 'http:')));
let attempt = 0;
const connection = container.connect({
    connection_details: () => {
        const { hostname, port } = places[attempt++ % places.length];
        return { host: hostname, port: Number(port), transport: 'tcp' };
    },
    idle_time_out: 4000,
    initial_reconnect_delay: 50,
    max_reconnect_delay: 500,
});
container.on('connection_error', () => {}); // the reconnect heals it
container.on('connection_close', () => {});
container.on('disconnected', () => {});
container.on('error', () => {});

connection.open_receiver('doubles');
const answers = connection.open_sender({ target: {} });

container.on('receiver_open', () => console.log('ready'));
container.on('message', ({ message }) => {
    const body = `${2 * Number(message.body)}`;
    answers.send({ to: message.reply_to, correlation_id: message.correlation_id, body });
});
// Whoever asked is gone, and so is its address; or the request named none.
container.on('rejected', ({ delivery }) => console.log(`not sent: ${delivery.remote_state.error.condition}`));
