# program: chokidar
# needs: tools/node/node_modules/chokidar/package.json=npm node=nodejs
# version: sed -n 's,.*"version": "\(.*\)".*,\1,p' "$NODE_PATH/chokidar/package.json"
# compares: what chokidar, the watcher of most tools of node's, says of files and directories that come, change, are moved, written in pieces, replaced by rename and removed, in a tree that it watches
# forms: run alone mount
cd "$1"
mkdir -p tree/deep/er
echo one >tree/first; echo two >tree/deep/er/second
cat >"$SCRATCH/watch.js" <<'END'
const { watch } = require('chokidar');
const fs = require('fs');
const { relative } = require('path');
const seen = new Map();
let waiting = () => {};
const watcher = watch('tree', {
  ignored: (path) => path.endsWith('.ignored'),
  awaitWriteFinish: process.argv[2] === 'whole' ? { stabilityThreshold: 300, pollInterval: 50 } : false,
  atomic: true,
});
watcher.on('all', (event, path) => {
  // Of a directory that is moved away, chokidar tells one time or the other by its whole path.
  const key = `${event} ${relative('.', path)}`;
  seen.set(key, (seen.get(key) || 0) + 1);
  waiting();
});
// Each change is told, sooner or later; how often is the system's.
const told = (...keys) => new Promise((done, fail) => {
  const late = setTimeout(() => fail(new Error(`not told: ${keys} of ${[...seen.keys()]}`)), 20000);
  waiting = () => {
    if (keys.every((key) => seen.has(key))) {
      clearTimeout(late);
      waiting = () => {};
      keys.forEach((key) => seen.delete(key));
      console.log(keys.join(', '));
      // What else is told of the same change comes meanwhile.
      setTimeout(done, 250);
    }
  };
  waiting();
});
const ready = new Promise((done) => watcher.on('ready', done));
watcher.on('error', (error) => { console.log('error', error.message); process.exit(1); });
(async () => {
  await ready;
  await told('addDir tree', 'addDir tree/deep', 'addDir tree/deep/er', 'add tree/first', 'add tree/deep/er/second');
  fs.writeFileSync('tree/made', 'text');
  fs.writeFileSync('tree/made.ignored', 'text');
  await told('add tree/made');
  fs.appendFileSync('tree/deep/er/second', 'more');
  await told('change tree/deep/er/second');
  fs.mkdirSync('tree/new/inner', { recursive: true });
  fs.writeFileSync('tree/new/inner/file', 'text');
  await told('addDir tree/new', 'addDir tree/new/inner', 'add tree/new/inner/file');
  fs.renameSync('tree/made', 'tree/new/moved');
  await told('unlink tree/made', 'add tree/new/moved');
  // As an editor saves.
  fs.writeFileSync('tree/.first.tmp', 'saved');
  fs.renameSync('tree/.first.tmp', 'tree/first');
  await told('change tree/first');
  const file = fs.openSync('tree/large', 'w');
  for (let n = 0; n < 20; n++) {
    fs.writeSync(file, 'x'.repeat(10000));
    await new Promise((done) => setTimeout(done, 20));
  }
  fs.closeSync(file);
  await told('add tree/large');
  fs.renameSync('tree/new', 'tree/renamed');
  await told('unlinkDir tree/new', 'addDir tree/renamed', 'add tree/renamed/moved', 'add tree/renamed/inner/file');
  fs.writeFileSync('tree/renamed/inner/file', 'again');
  await told('change tree/renamed/inner/file');
  fs.rmSync('tree/renamed', { recursive: true });
  await told('unlink tree/renamed/moved', 'unlinkDir tree/renamed/inner', 'unlinkDir tree/renamed');
  fs.unlinkSync('tree/large');
  await told('unlink tree/large');
  if ([...seen.keys()].some((key) => key.endsWith('ignored'))) throw new Error('an ignored file is told');
  const watched = watcher.getWatched();
  for (const directory of Object.keys(watched).sort()) console.log(directory, watched[directory].sort().join(' '));
  await watcher.close();
})().catch((error) => { console.log(error.message); process.exit(1); });
END
node "$SCRATCH/watch.js" plain
rm -r tree; mkdir -p tree/deep/er; echo one >tree/first; echo two >tree/deep/er/second
node "$SCRATCH/watch.js" whole
# What another process changes.
cat >"$SCRATCH/follow.js" <<'END'
const { watch } = require('chokidar');
const names = new Set();
const watcher = watch('tree');
watcher.on('ready', () => console.log('ready'));
watcher.on('add', (path) => names.add(path));
watcher.on('unlink', (path) => names.delete(path));
const look = setInterval(() => {
  if (names.has('tree/end') && names.size === 101) {
    clearInterval(look);
    console.log([...names].filter((name) => name.includes('7')).sort().join(' '));
    watcher.close();
  }
}, 20);
setTimeout(() => { console.log('has', [...names]); process.exit(1); }, 30000).unref();
END
rm -r tree; mkdir tree
node "$SCRATCH/follow.js" >"$SCRATCH/follow" & follower=$!
until grep -q ready "$SCRATCH/follow"; do sleep 0.05; done
for n in $(seq 200); do echo "$n" >"tree/$n"; done
for n in $(seq 101 200); do rm "tree/$n"; done
touch tree/end
wait $follower; cat "$SCRATCH/follow"
