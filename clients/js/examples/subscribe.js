// Appends each message of a topic to a file, exactly once, however often this program or its router is killed.
//
//     node subscribe.js URL,URL TOPIC COUNT FOLDER
//
// Prints `ready` when the subscription is confirmed, and the body of each delivery. It ends when the file FOLDER/lines has
// COUNT lines. The effect, a line there, is durable before the message is accepted. A crash between the two leaves a line
// whose delivery comes again: the program finds its id.
'use strict';

const fs = require('node:fs');
const path = require('node:path');
const { connect, FileJournal } = require('..');

/** The ids of the lines that are there; one that was cut off is removed. */
function linesOf(file) {
    const text = fs.existsSync(file) ? fs.readFileSync(file) : Buffer.alloc(0);
    const end = text.lastIndexOf('\n') + 1;
    if (end < text.length) fs.truncateSync(file, end);
    return new Set(text.toString('utf8', 0, end).split('\n').filter(Boolean).map((line) => line.split(' ')[0]));
}

async function main([urls, topic, count, folder]) {
    const journal = await FileJournal.open(path.join(folder, 'subscriber.journal'));
    const client = connect(urls.split(','), { containerId: 'lines' });
    try {
        const subscriber = await client.subscriber(topic, { name: 'lines', journal, timeout: 600 });
        console.log('ready');
        await subscribe(subscriber, Number(count), path.join(folder, 'lines'));
    } finally {
        await client.close();
        await journal.close();
    }
}

async function subscribe(subscriber, count, output) {
    const done = linesOf(output);
    const lines = fs.openSync(output, 'a');
    while (done.size < count) {
        const deliveries = await subscriber.receiveMany();
        const fresh = deliveries.filter(({ id }) => !done.has(id));
        fs.writeSync(lines, fresh.map(({ id, body }) => `${id} ${body}\n`).join(''));
        fs.fdatasyncSync(lines);
        for (const { id } of fresh) done.add(id);
        for (const { body } of deliveries) console.log(String(body));
        await Promise.all(deliveries.map((delivery) => delivery.accept()));
    }
}

main(process.argv.slice(2)).catch((error) => {
    console.error(error.message);
    process.exitCode = 1;
});
