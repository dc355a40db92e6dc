// A stock client of rhea with a selector: node rhea_selector.js RHEA_FOLDER HOST:PORT TOPIC COUNT
'use strict';

const [rheaFolder, place, topic, count] = process.argv.slice(2);
const container = require(rheaFolder).create_container({ id: 'rhea-selector' });
const [host, port] = place.split(':');
let left = Number(count);

container.on('receiver_open', () => console.log('ready'));
container.on('message', (context) => {
    console.log(`chosen ${context.message.application_properties.number}`);
    if (--left === 0) context.connection.close();
});
container
    .connect({ host, port: Number(port), reconnect: false })
    .open_receiver({ source: { address: topic, filter: container.filter.selector("color = 'red' AND number > 1") } });
