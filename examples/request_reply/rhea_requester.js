// Asks with rhea: the router makes an address for the answers.
//
//     node examples/request_reply/rhea_requester.js amqp://127.0.0.1:5672,amqp://127.0.0.1:5673 100
//
// After a crash of its router the receiver has another address. The question that has no answer is asked again: the
// responder may get it twice.
'use strict';

const container = require(process.env.RHEA || 'rhea').create_container();
const [urls, count] = [process.argv[2].split(','), Number(process.argv[3])];
const places = urls.map((url) => new URL(url.replace('amqp:', 'http:')));
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

let number = 0;
const questions = connection.open_sender('doubles');
const answers = connection.open_receiver({ source: { dynamic: true } });
const ask = () => questions.send({ reply_to: answers.source.address, correlation_id: `${number}`, body: `${number}` });

container.on('receiver_open', ask); // also after each reconnect
container.on('released', () => setTimeout(ask, 200)); // nobody answers yet
container.on('message', ({ message }) => {
    if (message.correlation_id !== `${number}`) return; // the answer to a question that was asked again
    console.log(`${number}: ${message.body}`);
    number++;
    if (number < count) ask(); else connection.close();
});
