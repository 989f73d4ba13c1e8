// What programs under node do with files: the synchronous calls, promises on its thread pool,
// streams, copying and removing trees. The first argument is the directory.
'use strict';
const crypto = require('crypto');
const events = require('events');
const fs = require('fs');
const os = require('os');
const path = require('path');
const child_process = require('child_process');
const stream = require('stream/promises');
const readline = require('readline');
const zlib = require('zlib');
const { Worker } = require('worker_threads');

const directory = process.argv[2];
process.chdir(directory);
const show = (...values) => fs.writeSync(1, values.map((v) => typeof v === 'string' ? v : JSON.stringify(v)).join(' ') + '\n');
const sum = (data) => crypto.createHash('sha256').update(data).digest('hex').slice(0, 16);
const refused = (f) => { try { f(); show('no error'); } catch (e) { show(e.code, e.syscall); } };

async function files() {
    show('--- files');
    fs.writeFileSync('a', 'one\ntwo\n'); fs.appendFileSync('a', 'three\n');
    show(fs.readFileSync('a', 'utf8'), fs.existsSync('a'), fs.existsSync('none'));
    const fd = fs.openSync('b', 'w+', 0o640);
    show(fs.writeSync(fd, 'hello world'), fs.writeSync(fd, Buffer.from('WORLD'), 0, 5, 6), fs.writevSync(fd, [Buffer.from('x'), Buffer.from('yz')]));
    const buffer = Buffer.alloc(100);
    show(fs.readSync(fd, buffer, 0, 100, 0), buffer.toString('utf8', 0, 14), fs.readvSync(fd, [Buffer.alloc(3), Buffer.alloc(50)], 2));
    fs.ftruncateSync(fd, 5); fs.fsyncSync(fd); fs.fdatasyncSync(fd); fs.futimesSync(fd, 1000, 2000); fs.fchmodSync(fd, 0o600);
    const s = fs.fstatSync(fd); show(s.size, s.mode.toString(8), s.mtimeMs, s.atimeMs, s.isFile(), s.nlink); fs.closeSync(fd);
    refused(() => fs.readFileSync('none')); refused(() => fs.openSync('a', 'wx')); refused(() => fs.readSync(fd, buffer)); refused(() => fs.mkdirSync('a')); refused(() => fs.rmdirSync('none')); refused(() => fs.readFileSync('.')); refused(() => fs.readdirSync('a')); refused(() => fs.linkSync('none', 'x')); refused(() => fs.accessSync('none'));
    fs.linkSync('a', 'hard'); fs.symlinkSync('a', 'soft'); fs.renameSync('hard', 'renamed'); fs.truncateSync('renamed', 4); fs.utimesSync('a', 5, 6); fs.lutimesSync('soft', 7, 8); fs.chmodSync('a', 0o644);
    show(fs.readlinkSync('soft'), fs.statSync('soft').nlink, fs.lstatSync('soft').isSymbolicLink(), fs.realpathSync('soft') === directory + '/a', fs.realpathSync.native('soft') === directory + '/a', fs.statSync('a', { bigint: true }).mtimeNs.toString());
    show(fs.mkdirSync('d/e/f', { recursive: true }) === directory + '/d' || 'made', fs.readdirSync('d', { recursive: true }).sort(), fs.mkdtempSync('tmp-').length, fs.statfsSync('.').type !== undefined);
    for (const name of fs.readdirSync('.').filter((n) => n.startsWith('tmp-'))) fs.rmdirSync(name);
    const dir = fs.opendirSync('.'); const names = []; for (let e; (e = dir.readSync()); ) names.push(e.name + (e.isDirectory() ? '/' : e.isSymbolicLink() ? '@' : '')); dir.closeSync(); show(names.sort());
    fs.copyFileSync('a', 'copied'); refused(() => fs.copyFileSync('a', 'copied', fs.constants.COPYFILE_EXCL)); fs.copyFileSync('a', 'copied', fs.constants.COPYFILE_FICLONE); show(fs.readFileSync('copied', 'utf8'), fs.statSync('copied').size);
}

async function promises() {
    show('--- promises');
    const p = fs.promises;
    await Promise.all(Array.from({ length: 200 }, async (_, i) => {
        const name = `many-${i % 10}`; await p.mkdir(name, { recursive: true });
        await p.writeFile(`${name}/file-${i}`, Buffer.alloc(i * 50, i));
        if (i % 3 === 0) await p.rename(`${name}/file-${i}`, `${name}/renamed-${i}`); else if (i % 3 === 1) await p.unlink(`${name}/file-${i}`);
    }));
    let count = 0, size = 0; for (let i = 0; i < 10; i++) for (const e of await p.readdir(`many-${i}`, { withFileTypes: true })) { count++; size += (await p.stat(path.join(`many-${i}`, e.name))).size; }
    show(count, size);
    const h = await p.open('handle', 'w+'); await h.write('0123456789'); await h.appendFile('abc'); show((await h.read(Buffer.alloc(4), 0, 4, 3)).buffer.toString(), (await h.stat()).size); await h.truncate(6); await h.sync(); await h.datasync(); await h.utimes(1, 2); await h.chmod(0o600); await h.close();
    show(await p.readFile('handle', 'utf8'), await p.access('none').catch((e) => e.code), await p.rm('none', { force: true }) === undefined);
    const lines = []; for await (const line of readline.createInterface({ input: fs.createReadStream('a') })) lines.push(line); show(lines);
    const lock = await p.open('exclusive', 'wx'); show(await p.open('exclusive', 'wx').catch((e) => e.code)); await lock.close();
    await p.cp('many-0', 'copy/many', { recursive: true }); show((await p.readdir('copy/many')).length); await p.rm('copy', { recursive: true }); show(fs.existsSync('copy'));
}

async function streams() {
    show('--- streams');
    const out = fs.createWriteStream('big'); for (let i = 0; i < 3000; i++) if (!out.write(`line ${i} ${'x'.repeat(i % 200)}\n`)) await events.once(out, 'drain'); out.end(); await events.once(out, 'finish');
    show(fs.statSync('big').size, sum(fs.readFileSync('big')));
    await stream.pipeline(fs.createReadStream('big'), zlib.createGzip(), fs.createWriteStream('big.gz')); await stream.pipeline(fs.createReadStream('big.gz'), zlib.createGunzip(), fs.createWriteStream('big.again')); show(sum(fs.readFileSync('big.again')) === sum(fs.readFileSync('big')));
    fs.unlinkSync('big.gz');
    let part = ''; for await (const chunk of fs.createReadStream('big', { start: 1000, end: 1019, encoding: 'utf8' })) part += chunk; show(part);
    await stream.pipeline(fs.createReadStream('a'), fs.createWriteStream('big', { flags: 'r+', start: 10 })); await stream.pipeline(fs.createReadStream('a'), fs.createWriteStream('big', { flags: 'a' })); show(fs.statSync('big').size);
}

async function others() {
    show('--- modules, threads and children');
    fs.mkdirSync('node_modules/inner', { recursive: true }); fs.writeFileSync('node_modules/inner/package.json', '{"main": "lib.js"}'); fs.writeFileSync('node_modules/inner/lib.js', 'exports.value = 42;'); fs.writeFileSync('main.js', "exports.value = require('inner').value + require('./data.json').one;"); fs.writeFileSync('data.json', '{"one": 1}'); fs.writeFileSync('module.mjs', 'export const value = 7;');
    show(require(path.join(directory, 'main.js')).value, (await import(path.join(directory, 'module.mjs'))).value, require.resolve(path.join(directory, 'main')).slice(directory.length));
    const workers = [1, 2, 3].map((n) => new Worker(`const fs = require('fs'); const { workerData: n } = require('worker_threads'); for (let i = 0; i < 100; i++) { fs.writeFileSync('w-' + n, String(i)); fs.appendFileSync('log', n + '\\n'); }`, { eval: true, workerData: n }));
    await Promise.all(workers.map((w) => events.once(w, 'exit'))); const log = fs.readFileSync('log', 'utf8').split('\n'); show(log.length, fs.readFileSync('w-2', 'utf8')); fs.writeFileSync('log', log.sort().join('\n'));
    show(child_process.execFileSync('cat', ['a'], { encoding: 'utf8' }), child_process.execSync('pwd; ls | wc -l', { cwd: 'd', encoding: 'utf8' }).slice(directory.length));
    const fd = fs.openSync('from-child', 'w'); child_process.spawnSync('sh', ['-c', 'echo to a file; cat'], { stdio: [fs.openSync('a'), fd, fd] }); fs.closeSync(fd); show(fs.readFileSync('from-child', 'utf8'));
    const child = child_process.spawn(process.execPath, ['-e', "require('fs').writeFileSync('by-node', process.cwd().slice(-2)); process.exit(3)"], { cwd: 'd' }); show((await events.once(child, 'exit'))[0], fs.readFileSync('d/by-node', 'utf8'));
    fs.rmSync('d', { recursive: true }); process.umask(0o077); fs.writeFileSync('masked', ''); show(fs.statSync('masked').mode.toString(8), process.cwd() === directory, 'done');
}

files().then(promises).then(streams).then(others).catch((e) => { show(String(e.stack)); process.exit(1); });
