# program: inotifywait, entr, tail -F, watchdog, watchfiles, node, chokidar, nodemon, Java
# needs: inotifywait=inotify-tools entr=entr tail=coreutils /usr/lib/python3/dist-packages/watchdog/__init__.py=python3-watchdog node=nodejs nodemon=npm watchfiles=pypi java=default-jdk-headless
# version: inotifywait --help | sed 's/ .*//;1q'; dpkg-query -f '${Version}' -W inotify-tools; echo
# compares: what each says of files that come, change, are moved and go in a directory that it watches
cd "$1"
mkdir -p d/sub
echo one >d/file

# Waits until a file says so much.
says() {
    for _ in $(seq 600); do
        if grep -qE "$2" "$1" 2>/dev/null; then return; fi
        sleep 0.05
    done
    echo "$1 never says $2:"
    cat "$1"
    exit 1
}

# A line for each event, as often as it comes.
inotifywait -m -r -e create,delete,moved_to,moved_from,close_write --format '%e %w%f' d \
    >"$SCRATCH/events" 2>"$SCRATCH/ready" &
watcher=$!
says "$SCRATCH/ready" 'Watches established'
touch d/first
says "$SCRATCH/events" 'CREATE d/first'
echo two >d/file
says "$SCRATCH/events" 'CLOSE_WRITE,CLOSE d/file'
mv d/file d/sub/moved
says "$SCRATCH/events" 'MOVED_TO d/sub/moved'
# A directory that comes to be watched.
mkdir d/new
says "$SCRATCH/events" 'CREATE,ISDIR d/new'
sleep 0.3
echo x >d/new/inside
says "$SCRATCH/events" 'CLOSE_WRITE,CLOSE d/new/inside'
rm -r d/new
says "$SCRATCH/events" 'DELETE,ISDIR d/new'
kill "$watcher"
wait "$watcher" || true
sort -u "$SCRATCH/events"

# It ends with the first event, or when it has waited.
(sleep 0.3; echo three >>d/sub/moved) &
inotifywait -qq -t 20 -e modify d/sub/moved
wait
if inotifywait -qq -t 1 -e create d; then echo "something is made?"; fi

# Runs a command when a file changes.
echo d/first | entr -n -p sh -c 'echo "entr: $(cat d/first)" >>log' &
watcher=$!
sleep 0.7
echo four >d/first
says log 'entr: four'
sleep 0.3
echo five >d/first
says log 'entr: five'
kill "$watcher"
wait "$watcher" || true
cat log

# Follows a file by name, through its rotation.
echo begin >d/log
tail -n +1 -F d/log >"$SCRATCH/tail" 2>/dev/null &
watcher=$!
says "$SCRATCH/tail" begin
echo more >>d/log
says "$SCRATCH/tail" more
mv d/log d/log.1
echo rotated >d/log
says "$SCRATCH/tail" rotated
kill "$watcher"
wait "$watcher" || true
cat "$SCRATCH/tail"

cat >"$SCRATCH/watch.py" <<'END'
import sys, time
from watchdog.events import FileSystemEventHandler
from watchdog.observers.inotify import InotifyObserver

class Handler(FileSystemEventHandler):
    def on_any_event(self, event):
        if event.event_type in ("created", "moved", "deleted") and not event.is_synthetic:
            to = getattr(event, "dest_path", "")
            print(event.event_type, event.src_path, to, flush=True)

observer = InotifyObserver()
observer.schedule(Handler(), "d", recursive=True)
observer.start()
print("ready", flush=True)
sys.stdin.read()
observer.stop()
observer.join()
END
mkfifo "$SCRATCH/end"
/usr/bin/python3 "$SCRATCH/watch.py" <"$SCRATCH/end" >"$SCRATCH/watchdog" &
exec 4>"$SCRATCH/end"
says "$SCRATCH/watchdog" ready
touch d/dog
says "$SCRATCH/watchdog" 'created d/dog'
mv d/dog d/cat
says "$SCRATCH/watchdog" 'moved d/dog d/cat'
rm d/cat
says "$SCRATCH/watchdog" 'deleted d/cat'
exec 4>&-
wait
grep -v '^modified' "$SCRATCH/watchdog" | sort -u

cat >"$SCRATCH/watch.js" <<'END'
const fs = require('fs');
const seen = new Set();
const watcher = fs.watch('d', (event, name) => {
  seen.add(`${event} ${name}`);
  if (seen.has('rename node') && seen.has('change node') && seen.has('rename end')) {
    watcher.close();
    console.log([...seen].sort().join('\n'));
  }
});
setTimeout(() => fs.writeFileSync('d/node', 'x'), 100);
setTimeout(() => fs.writeFileSync('d/end', ''), 500);
setTimeout(() => { console.log('not told', [...seen]); process.exit(1); }, 20000).unref();
END
node "$SCRATCH/watch.js" | grep -v 'change end'

cat >"$SCRATCH/chokidar.js" <<'END'
const fs = require('fs');
const path = require('path');
const chokidar = require('chokidar');
const wanted = ['add d/made', 'change d/made', 'unlink d/made', 'addDir d/deep', 'add d/deep/inside', 'unlinkDir d/deep'];
const seen = new Set();
const watcher = chokidar.watch('d', { ignoreInitial: true });
const steps = [
  () => fs.writeFileSync('d/made', 'x'),
  () => fs.appendFileSync('d/made', 'more'),
  () => fs.unlinkSync('d/made'),
  () => fs.mkdirSync('d/deep'),
  () => fs.writeFileSync('d/deep/inside', ''),
  () => fs.rmSync('d/deep', { recursive: true }),
];
// Each step when the one before has been told.
let step = 0;
watcher.on('ready', () => steps[0]());
// Of a directory that goes it gives the whole path.
watcher.on('all', (event, name) => {
  seen.add(`${event} ${path.relative('.', name)}`);
  while (step < wanted.length && seen.has(wanted[step])) {
    step += 1;
    if (step < steps.length) setTimeout(steps[step], 200);
    else watcher.close().then(() => { console.log(wanted.join('\n')); process.exit(0); });
  }
});
setTimeout(() => { console.log('not told', [...seen]); process.exit(1); }, 20000).unref();
END
node "$SCRATCH/chokidar.js"

# It runs a script again when that has changed.
echo 'console.log("first");' >d/script.js
nodemon --quiet --delay 0.1 d/script.js >"$SCRATCH/nodemon" 2>&1 &
watcher=$!
says "$SCRATCH/nodemon" first
sleep 1
echo 'console.log("second");' >d/script.js
says "$SCRATCH/nodemon" second
kill "$watcher"
wait "$watcher" || true
sort -u "$SCRATCH/nodemon"
rm d/script.js

# Rust's, with a part in Python that lies beside it.
PYTHONPATH=$(dirname "$(dirname "$(command -v watchfiles)")")
export PYTHONPATH
watchfiles --version
# One change may be told in two parts: that it runs again counts, not how often.
watchfiles --filter all 'sh -c "test ! -e ran || echo again >again; echo ran >ran"' d >"$SCRATCH/watchfiles" 2>&1 &
watcher=$!
says ran ran
sleep 1
if [[ -e again ]]; then echo "it runs again though nothing has changed"; fi
echo x >d/rust
says again 'again'
kill "$watcher"
wait "$watcher" || true
unset PYTHONPATH
cat again
rm ran again

cat >"$SCRATCH/Watch.java" <<'END'
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.TimeUnit;
import static java.nio.file.StandardWatchEventKinds.*;

class Watch {
    public static void main(String[] arguments) throws Exception {
        Path directory = Path.of("d");
        WatchService service = FileSystems.getDefault().newWatchService();
        directory.register(service, ENTRY_CREATE, ENTRY_DELETE);
        Set<String> seen = new TreeSet<>();
        Files.createFile(directory.resolve("java"));
        collect(service, seen, "ENTRY_CREATE java");
        Files.delete(directory.resolve("java"));
        collect(service, seen, "ENTRY_DELETE java");
        System.out.println(seen);
    }

    static void collect(WatchService service, Set<String> seen, String until) throws Exception {
        while (!seen.contains(until)) {
            WatchKey key = service.poll(20, TimeUnit.SECONDS);
            if (key == null) throw new Exception("not told: " + until + " " + seen);
            for (WatchEvent<?> event : key.pollEvents()) seen.add(event.kind() + " " + event.context());
            key.reset();
        }
    }
}
END
java "$SCRATCH/Watch.java"
rm log
