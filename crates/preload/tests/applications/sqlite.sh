# Databases with each kind of journal, written and read by several connections in turn.
set -eu
cd "$1"
export SQLITE_TMPDIR=$1
for mode in delete truncate persist memory off; do
    sqlite3 $mode.db <<SQL
PRAGMA journal_mode=$mode; PRAGMA synchronous=FULL; PRAGMA cache_size=20;
CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT, c INT); CREATE INDEX i ON t(b);
BEGIN; WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x<3000) INSERT INTO t SELECT x, 'value '||(x*7919%3000), x%97 FROM n; COMMIT;
UPDATE t SET b = b||'!' WHERE a%3=0; DELETE FROM t WHERE a%7=0; INSERT INTO t(b,c) VALUES('last',1);
SELECT count(*), sum(a), sum(length(b)), max(b) FROM t; PRAGMA integrity_check;
SQL
    # A transaction that must be rolled back by who comes next.
    [ $mode = memory ] || [ $mode = off ] || { sqlite3 $mode.db "PRAGMA journal_mode=$mode; PRAGMA cache_size=5; BEGIN; UPDATE t SET b='lost'; SELECT count(*) FROM t WHERE b='lost';" '.shell kill -KILL $PPID' || echo "status $?"; } 2>/dev/null
    sqlite3 $mode.db "SELECT count(*), max(b) FROM t; PRAGMA integrity_check"
done
sqlite3 delete.db "PRAGMA temp_store=FILE; PRAGMA cache_size=10; CREATE TEMP TABLE x AS SELECT * FROM t ORDER BY b; SELECT count(*) FROM x; VACUUM; PRAGMA page_count; ATTACH 'attached.db' AS o; CREATE TABLE o.copy AS SELECT * FROM t; SELECT count(*) FROM o.copy;"
sqlite3 delete.db ".dump" | sqlite3 restored.db; sqlite3 restored.db "SELECT count(*), max(a) FROM t" ".backup backup.db" ".schema"
sqlite3 backup.db "PRAGMA mmap_size=1000000; SELECT sum(a) FROM t" "INSERT INTO t(b) VALUES('mapped'); SELECT max(a) FROM t"
sqlite3 delete.db "VACUUM INTO 'into.db'" ".output out.csv" ".mode csv" "SELECT * FROM t LIMIT 100" ".output stdout" ".import out.csv imported" "SELECT count(*) FROM imported"
wc -l <out.csv
sqlite3 wal.db "PRAGMA journal_mode=wal; CREATE TABLE t(a, b); WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x<2000) INSERT INTO t SELECT x, x*x FROM n; SELECT count(*), sum(b) FROM t"
sqlite3 wal.db "SELECT count(*) FROM t; DELETE FROM t WHERE a%2; SELECT count(*) FROM t; PRAGMA wal_checkpoint(TRUNCATE); PRAGMA integrity_check"
ls
