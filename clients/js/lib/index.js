'use strict';

const { connect } = require('./client.js');
const { FileJournal, MemoryJournal } = require('./journal.js');
const errors = require('./errors.js');

module.exports = { connect, FileJournal, MemoryJournal, ...errors };
