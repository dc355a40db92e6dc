// Publishes rows 1 to COUNT of a topic, each exactly once, however often this program or its router is killed.
//
//     node publish.js URL,URL TOPIC COUNT FOLDER
//
// Prints `NUMBER accepted` for each. FOLDER has its journal. Start it again with the same one: it continues.
'use strict';

const path = require('node:path');
const { connect, FileJournal } = require('..');

const BATCH = 100; // rows that the journal makes durable in one write

async function main([urls, topic, count, folder]) {
    const journal = await FileJournal.open(path.join(folder, 'publisher.journal'));
    const client = connect(urls.split(','), { containerId: 'rows' });
    try {
        await publish(await client.publisher(topic, { name: 'rows', journal }), Number(count));
    } finally {
        await client.close();
        await journal.close();
    }
}

async function publish(publisher, count) {
    const report = async (sending) => console.log(`${sending.number} ${(await sending.outcome).kind}`);
    const reports = publisher.recovered.map(report);
    while (publisher.nextNumber <= count) {
        const first = publisher.nextNumber;
        const rows = Array.from({ length: Math.min(BATCH, count + 1 - first) }, (_, at) => first + at);
        await Promise.all(rows.map(async (row) => reports.push(report(await publisher.submit(`row ${row}`)))));
    }
    await Promise.all(reports);
    await publisher.close();
}

main(process.argv.slice(2)).catch((error) => {
    console.error(error.message);
    process.exitCode = 1;
});
