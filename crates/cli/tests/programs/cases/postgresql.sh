# program: PostgreSQL
# needs: /usr/lib/postgresql/*/bin/initdb=postgresql pkill=procps
# version: $(ls -d /usr/lib/postgresql/*/bin/postgres | sort -V | tail -n 1) --version | awk '{ print $3 }'
# compares: all rows after initdb, pgbench by 4 clients, SIGKILL of all its processes and recovery, sums of pages checked
# user: postgres
cd "$1"
PATH=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1):$PATH
export PGHOST=$SCRATCH PGUSER=postgres PGDATABASE=postgres PGPORT=54329 PGDATA=$1/data
initdb -U postgres -A trust -k --locale=C -E UTF8 >"$SCRATCH/initdb.log" 2>&1 || { cat "$SCRATCH/initdb.log"; exit 1; }
cat >>data/postgresql.conf <<END
listen_addresses = ''
unix_socket_directories = '$SCRATCH'
logging_collector = off
max_wal_size = 128MB
END
start() {
    # A line for each server; none of them outlives the case.
    pg_ctl -s -w -t 300 -l "$SCRATCH/log" start || { tail -n 20 "$SCRATCH/log"; exit 1; }
}
trap 'pg_ctl -s -m immediate stop 2>/dev/null || true' EXIT
start
pgbench -q -i -s 2 2>/dev/null
pgbench -n -c 4 -j 2 -t 250 2>/dev/null | grep 'actually processed'
psql -XAtq <<'END'
CREATE TABLE words(n int PRIMARY KEY, word text, place point); CREATE INDEX ON words(word); CREATE INDEX ON words USING gist(place);
INSERT INTO words SELECT n, 'word ' || n % 97, point(n, -n) FROM generate_series(1, 20000) n;
UPDATE words SET word = repeat('long ', 2000) || n WHERE n % 1000 = 0;
DELETE FROM words WHERE n % 3 = 0; VACUUM FULL words; ANALYZE words; CHECKPOINT;
SELECT count(*), sum(n), sum(length(word)), md5(string_agg(word, ',' ORDER BY n)) FROM words;
CREATE DATABASE second TEMPLATE template0;
COPY words TO PROGRAM 'sort -n | md5sum >&2';
SET work_mem = '64kB'; SELECT count(*) FROM (SELECT DISTINCT word || n FROM generate_series(1, 30000) g JOIN words ON g = n ORDER BY 1) s;
BEGIN; CREATE TABLE gone(x int); INSERT INTO gone SELECT generate_series(1, 10000); ROLLBACK;
END
psql -XAtq -c "COPY words TO '$1/words.csv' CSV"; cksum words.csv; psql -XAtq -d second -c 'CREATE TABLE copy(n int, word text, place point)' -c "COPY copy FROM '$1/words.csv' CSV" -c 'SELECT count(*) FROM copy'; rm words.csv
# Everything acknowledged outlives the death of all processes in the middle of work.
psql -XAtq -c 'CREATE TABLE acknowledged(client int, n int)'
for client in 1 2; do
    for n in $(seq 2000); do echo "INSERT INTO acknowledged VALUES ($client, $n); SELECT $n;"; done | psql -XAtq >"$SCRATCH/acknowledged-$client" 2>/dev/null & clients+=($!)
done
until [[ $(wc -l <"$SCRATCH/acknowledged-1") -ge 100 && $(wc -l <"$SCRATCH/acknowledged-2") -ge 100 ]]; do sleep 0.01; done
server=$(head -n 1 data/postmaster.pid)
kill -STOP "$server"; pkill -KILL -P "$server"; kill -KILL "$server"; while kill -0 "$server" 2>/dev/null; do sleep 0.01; done
wait "${clients[@]}" || true
start
grep -c 'automatic recovery in progress' "$SCRATCH/log"
for client in 1 2; do
    last=$(tail -n 1 "$SCRATCH/acknowledged-$client")
    psql -XAtq -c "SELECT count(*) >= $last, max(n) = count(*), count(DISTINCT n) = count(*) FROM acknowledged WHERE client = $client"
done
psql -XAtq -c 'SELECT count(*), sum(n) FROM words' -c 'SELECT sum(abalance) = (SELECT sum(delta) FROM pgbench_history) FROM pgbench_accounts' -c 'SELECT count(*) FROM pgbench_history'
pgbench -n -c 2 -t 100 2>/dev/null | grep 'actually processed'
pg_dump -t words | grep -v '^--\|restrict' | md5sum
pg_ctl -s -m fast stop; pg_checksums --check | grep -i 'bad checksums'; pg_controldata | grep 'cluster state'
# What is there is a server's, which a new one reads; of files with names from counters, none is compared.
start; psql -XAtq -c 'SELECT count(*) FROM words' -c 'REINDEX DATABASE postgres'; pg_basebackup -D "$1/backup" -X stream -c fast; pg_verifybackup "$1/backup" >/dev/null 2>&1 && echo verified; pg_ctl -s -m fast stop
rm -r data backup; ls -A
