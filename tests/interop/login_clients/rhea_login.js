// Logs in with rhea as the variables LOGIN_* say; prints `opened` or why not.
'use strict';

const fs = require('fs');
const container = require(process.argv[2]).create_container({ id: 'login-rhea' });
const { LOGIN_PORT, LOGIN_MECHANISM, LOGIN_USER, LOGIN_SECRET, LOGIN_CA, LOGIN_CERT, LOGIN_KEY } = process.env;
const options = {
    host: 'localhost', port: Number(LOGIN_PORT), transport: 'tls', ca: fs.readFileSync(LOGIN_CA), reconnect: false,
};
if (LOGIN_MECHANISM === 'EXTERNAL') {
    Object.assign(options, { cert: fs.readFileSync(LOGIN_CERT), key: fs.readFileSync(LOGIN_KEY), enable_sasl_external: true });
} else if (LOGIN_MECHANISM === 'XOAUTH2') {
    Object.assign(options, { username: LOGIN_USER, token: LOGIN_SECRET });
} else if (LOGIN_MECHANISM === 'PLAIN') {
    Object.assign(options, { username: LOGIN_USER, password: LOGIN_SECRET });
} else {
    options.username = 'anonymous';
}
const connection = container.connect(options);
container.on('connection_open', () => { console.log('opened'); connection.close(); });
for (const name of ['connection_error', 'error', 'disconnected']) {
    container.on(name, (context) => { console.log('refused', String(context.error || context)); });
}
