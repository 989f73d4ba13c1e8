# program: sqlite3, write-ahead log, two processes at once
# needs: sqlite3=sqlite3
# version: sqlite3 --version | awk '{ print $1 }'
# compares: all rows of two writers and what two readers saw, integrity, a writer killed in a transaction
# volatile: wal.db
# forms: run
cd "$1"
sqlite3 wal.db 'PRAGMA journal_mode=wal; CREATE TABLE t(who, n, PRIMARY KEY(who, n)); CREATE TABLE sums(who PRIMARY KEY, sum); INSERT INTO sums VALUES (1, 0), (2, 0);'
writer() {
    { echo '.timeout 60000'; for n in {1..300}; do echo "BEGIN IMMEDIATE; INSERT INTO t VALUES ($1, $n); UPDATE sums SET sum = sum + $n WHERE who = $1; COMMIT;"; done; } | sqlite3 wal.db
}
# A reader sees whole transactions, and never less than before.
reader() {
    { echo '.timeout 60000'; for _ in {1..200}; do echo 'SELECT (SELECT count(*) FROM t), (SELECT total(sum) FROM sums) = (SELECT total(n) FROM t);'; done; } | sqlite3 wal.db |
        awk -F '|' '$2 != 1 || $1 < last { bad++ } { last = $1 } END { print "reader:", NR, bad + 0 }'
}
writer 1 & one=$!; writer 2 & two=$!; reader & three=$!; reader & four=$!
wait $one; wait $two; wait $three; wait $four
sqlite3 wal.db 'SELECT who, count(*), sum(n) FROM t GROUP BY who; SELECT * FROM sums; PRAGMA integrity_check;'
# Killed in the middle of a transaction, while another process has the database open.
# The locks of who was killed go when the controller notices, which may be after its parent has.
coproc HOLD { sqlite3 -cmd '.timeout 60000' wal.db; }
echo 'SELECT count(*) FROM t;' >&"${HOLD[1]}"; read -r count <&"${HOLD[0]}"; echo "$count"
{ sqlite3 wal.db "BEGIN IMMEDIATE; DELETE FROM t WHERE who = 1; SELECT count(*) FROM t;" '.shell kill -KILL $PPID'; } 2>/dev/null || echo "status $?"
echo "INSERT INTO t VALUES (3, 1); SELECT count(*) FROM t; PRAGMA integrity_check;" >&"${HOLD[1]}"
read -r count <&"${HOLD[0]}"; read -r sound <&"${HOLD[0]}"; echo "$count $sound"
sqlite3 -cmd '.timeout 60000' wal.db "INSERT INTO t VALUES (3, 2); PRAGMA wal_checkpoint(PASSIVE)" | cut -d '|' -f 1
echo "SELECT count(*) FROM t;" >&"${HOLD[1]}"; read -r count <&"${HOLD[0]}"; echo "$count"; ls
exec {HOLD[1]}>&-; wait
sqlite3 wal.db 'PRAGMA wal_checkpoint(TRUNCATE); SELECT count(*) FROM t; PRAGMA integrity_check'; sqlite3 wal.db .dump | sort | sha256sum; ls
