// A stock client of rhea that reads a journal: node rhea_journal.js RHEA_FOLDER URL ADDRESS START COUNT
// START is a word, such as first, or a position. It prints each position with its message.
'use strict';

const [rheaFolder, url, address, start, count] = process.argv.slice(2);
const rhea = require(rheaFolder);
const container = rhea.create_container({ id: 'rhea-journal' });
const { hostname, port } = new URL(url.replace('amqp:', 'http:'));
const OFFSET = 'rabbitmq:stream-offset-spec';
const value = /^\d+$/.test(start) ? Number(start) : start;
const filter = { [OFFSET]: rhea.types.wrap_described(value, OFFSET) };
let left = Number(count);

container.on('message', (context) => {
    const position = context.message.message_annotations['x-stream-offset'];
    console.log(`${position} ${context.message.body.content || context.message.body}`);
    if (--left === 0) context.connection.close();
});
container.connect({ host: hostname, port: Number(port), reconnect: false }).open_receiver({ source: { address, filter } });
