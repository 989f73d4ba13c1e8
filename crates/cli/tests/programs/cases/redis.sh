# program: redis-server
# needs: redis-server=redis-server redis-cli=redis-tools redis-benchmark=redis-tools
# version: redis-server --version | sed 's/.*v=\([0-9.]*\).*/\1/'
# compares: all keys after SIGKILL, after a rewrite of the log and after a snapshot in a child under load, each read by a new server
# volatile: base.rdb dump.rdb
sockets=$SCRATCH
for task in write rewrite read; do
    sh "$DEMO/redis" "$1/log" "$sockets" $task 2000
done
mkdir "$1/snapshots"
ask() { redis-cli -s "$sockets/socket" "$@"; }
start() {
    redis-server --port 0 --unixsocket "$sockets/socket" --dir "$1/snapshots" --save '' --logfile '' >"$sockets/log" 2>&1 &
    server=$!
    until [[ $(ask ping 2>/dev/null) == PONG ]]; do kill -0 $server; sleep 0.01; done
}
start "$1"
seq 5000 | sed 's/.*/SET key:& value-&-&/' | ask | sort -u
# The child writes what there was when it was forked, while more comes.
ask bgsave >/dev/null; seq 5000 | sed 's/.*/SET later:& &/' | ask | sort -u
until ask info persistence | grep -q rdb_bgsave_in_progress:0; do sleep 0.01; done
ask info persistence | tr -d '\r' | grep -x rdb_last_bgsave_status:ok
ask bgsave >/dev/null; until ask info persistence | grep -q rdb_bgsave_in_progress:0; do sleep 0.01; done
kill -KILL $server; wait $server 2>/dev/null || true
start "$1"; ask dbsize; seq 5000 | sed 's/.*/GET key:&/' | ask | sha256sum; ask get later:4999
ask config set appendonly yes; until ask info persistence | grep -q aof_rewrite_in_progress:0; do sleep 0.01; done
ask config set auto-aof-rewrite-percentage 0; seq 3000 | sed 's/.*/INCRBY counter &/' | ask | tail -n 1
ask shutdown save >/dev/null 2>&1 || true; wait $server; ls "$1/snapshots"
