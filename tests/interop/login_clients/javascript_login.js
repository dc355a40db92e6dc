// Logs in with our client in JavaScript as the variables LOGIN_* say; prints `opened` or why not.
'use strict';

const fs = require('fs');
const { connect } = require(process.argv[2]);
const { LOGIN_PORT, LOGIN_MECHANISM, LOGIN_USER, LOGIN_SECRET, LOGIN_CA, LOGIN_CERT, LOGIN_KEY } = process.env;
const user = LOGIN_MECHANISM === 'PLAIN' ? `${LOGIN_USER}:${LOGIN_SECRET}@` : '';
const tls = { ca: fs.readFileSync(LOGIN_CA) };
if (LOGIN_MECHANISM === 'EXTERNAL') {
    Object.assign(tls, { cert: fs.readFileSync(LOGIN_CERT), key: fs.readFileSync(LOGIN_KEY), enable_sasl_external: true });
}
const client = connect(`amqps://${user}localhost:${LOGIN_PORT}`, { containerId: 'login', tls });
client.on('connected', () => {
    console.log('opened');
    client.close();
});
client.publisher('any', { name: 'any' }).catch((error) => console.log('refused', error.message));
