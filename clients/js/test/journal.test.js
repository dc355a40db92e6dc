'use strict';

const assert = require('node:assert');
const { execFileSync, spawnSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { test } = require('node:test');
const { FileJournal } = require('../lib/journal.js');
const { JournalError } = require('../lib/errors.js');

const ACCEPTED = { kind: 'accepted' };
const REJECTED = { kind: 'rejected', condition: 'app:no', description: 'no' };
const tag = (number) => Buffer.from([number]);
const place = () => path.join(fs.mkdtempSync(path.join(os.tmpdir(), 'journal-')), 'journal');
const module_ = JSON.stringify(require.resolve('../lib/journal.js'));

async function reopened(journal, file) {
    await journal.close();
    return FileJournal.open(file);
}

test('a message is in the map until its outcome is recorded, and its number is never used again', async () => {
    const file = place();
    let journal = await FileJournal.open(file);
    await journal.write({ link: 'P:a', stored: [[1, Buffer.from('one')], [2, Buffer.from('two')]] });
    await journal.write({ link: 'P:a', decided: [[2, ACCEPTED]] });
    journal = await reopened(journal, file);
    assert.deepStrictEqual([...journal.publisher('a').messages], [[1, Buffer.from('one')]]);
    await journal.write({ link: 'P:a', decided: [[1, ACCEPTED]] });
    journal = await reopened(await reopened(journal, file), file);
    assert.strictEqual(journal.publisher('a').messages.size, 0);
    assert.strictEqual(journal.publisher('a').nextNumber, 3);
    await journal.close();
});

test('an outcome other than accepted is kept until it was seen', async () => {
    const file = place();
    let journal = await FileJournal.open(file);
    await journal.write({ link: 'P:a', stored: [[1, Buffer.from('one')]] });
    await journal.write({ link: 'P:a', decided: [[1, REJECTED]] });
    journal = await reopened(journal, file);
    assert.deepStrictEqual([...journal.publisher('a').outcomes], [[1, REJECTED]]);
    await journal.write({ link: 'P:a', forgotten: [1] });
    journal = await reopened(journal, file);
    assert.strictEqual(journal.publisher('a').outcomes.size, 0);
    await journal.close();
});

test('the map of a subscriber comes back in the order of arrival, without what was settled', async () => {
    const file = place();
    let journal = await FileJournal.open(file);
    await journal.write({ link: 'S:a', incarnation: '7', entries: [[tag(1), null], [tag(2), ACCEPTED]] });
    await journal.write({ link: 'S:a', entries: [[tag(1), REJECTED], [tag(3), ACCEPTED]], forgotten: [tag(2)] });
    journal = await reopened(journal, file);
    const { incarnation, entries } = journal.subscriber('a');
    assert.strictEqual(incarnation, '7');
    assert.deepStrictEqual([...entries], [['01', REJECTED], ['03', ACCEPTED]]);
    await journal.close();
});

test('a tag that was settled and comes again in one write is the new delivery', async () => {
    const file = place();
    let journal = await FileJournal.open(file);
    await journal.write({ link: 'S:a', entries: [[tag(1), ACCEPTED]] });
    await journal.write({ link: 'S:a', forgotten: [tag(1)], entries: [[tag(1), null]] });
    journal = await reopened(journal, file);
    assert.deepStrictEqual([...journal.subscriber('a').entries], [['01', null]]);
    await journal.close();
});

test('what was written is there after a SIGKILL of the process', async () => {
    const file = place();
    const program = `
        const { FileJournal } = require(${module_});
        FileJournal.open(${JSON.stringify(file)}).then(async (journal) => {
            await Promise.all([1, 2, 3].map((n) => journal.write({ link: 'P:a', stored: [[n, Buffer.from('x')]] })));
            process.kill(process.pid, 'SIGKILL');
        });`;
    assert.strictEqual(spawnSync(process.execPath, ['-e', program]).signal, 'SIGKILL');
    const journal = await FileJournal.open(file);
    assert.deepStrictEqual([...journal.publisher('a').messages.keys()], [1, 2, 3]);
    await journal.close();
});

test('of a last line that was cut off nothing counts, wherever it was cut', async () => {
    const file = place();
    const journal = await FileJournal.open(file);
    await journal.write({ link: 'P:a', stored: [[1, Buffer.from('one')]] });
    const whole = fs.readFileSync(file);
    await Promise.all([2, 3].map((number) => journal.write({ link: 'P:a', stored: [[number, Buffer.from('more')]] })));
    await journal.close();
    const all = fs.readFileSync(file);
    for (let end = whole.length; end < all.length; end++) {
        fs.writeFileSync(file, all.subarray(0, end));
        const cut = await FileJournal.open(file);
        assert.deepStrictEqual([...cut.publisher('a').messages.keys()], [1], `cut at ${end}`);
        await cut.close();
    }
});

test('a line that was damaged in the middle is refused, and not skipped', async () => {
    const file = place();
    const journal = await FileJournal.open(file);
    await journal.write({ link: 'P:a', stored: [[1, Buffer.from('one')]] });
    await journal.write({ link: 'P:a', stored: [[2, Buffer.from('two')]] });
    await journal.close();
    const text = fs.readFileSync(file, 'utf8');
    fs.writeFileSync(file, text.replace('stored', 'storeD'));
    await assert.rejects(FileJournal.open(file), (error) => error instanceof JournalError && /line 2 is damaged/.test(error.message));
});

test('the file does not grow with what is over', async () => {
    const file = place();
    let journal = await FileJournal.open(file);
    const payload = Buffer.alloc(10_000);
    for (let number = 1; number <= 400; number++) {
        journal.write({ link: 'P:a', stored: [[number, payload]] });
        await journal.write({ link: 'P:a', decided: [[number, ACCEPTED]] });
    }
    assert.ok(fs.statSync(file).size < 2 << 20, String(fs.statSync(file).size));
    journal = await reopened(journal, file);
    assert.strictEqual(journal.publisher('a').nextNumber, 401);
    await journal.close();
});

test('after a failed write every call rejects', async () => {
    const file = place();
    const journal = await FileJournal.open(file);
    await journal._handle.close(); // as if the disk had failed
    await assert.rejects(journal.write({ link: 'P:a', stored: [[1, Buffer.from('one')]] }), JournalError);
    await assert.rejects(journal.write({ link: 'P:a', stored: [[2, Buffer.from('two')]] }), JournalError);
    await journal.close().catch(() => {});
});

test('a second process is refused while the first has it', { skip: !['linux', 'win32'].includes(process.platform) }, async () => {
    const file = place();
    const journal = await FileJournal.open(file);
    const program = `require(${module_}).FileJournal.open(${JSON.stringify(file)}).catch((error) => console.log(error.message))`;
    assert.match(execFileSync(process.execPath, ['-e', program]).toString(), /is in use/);
    await journal.close();
    await (await FileJournal.open(file)).close();
});
