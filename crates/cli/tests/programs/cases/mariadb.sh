# program: MariaDB
# needs: /usr/sbin/mariadbd=mariadb-server /usr/bin/mariadb-install-db=mariadb-server mariadb=mariadb-client
# version: /usr/sbin/mariadbd --version | sed 's/.*Ver \([0-9.]*\).*/\1/'
# compares: all rows after its system tables are made, transactions by 4 clients with native AIO, SIGKILL of the server while 2 clients write, recovery, sums of pages checked
# user: mysql
# forms: run alone mount
cd "$1"
data=$1/data; socket=$SCRATCH/socket
options=(--no-defaults --datadir="$data" --user=mysql --innodb-buffer-pool-size=32M --innodb-log-file-size=32M --innodb-flush-log-at-trx-commit=1)
mariadb-install-db "${options[@]}" --skip-test-db --auth-root-authentication-method=normal >"$SCRATCH/install.log" 2>&1 || { cat "$SCRATCH/install.log"; exit 1; }
ask() { mariadb --no-defaults -uroot -S "$socket" -N "$@"; }
start() {
    /usr/sbin/mariadbd "${options[@]}" --socket="$socket" --skip-networking --pid-file="$SCRATCH/pid" --innodb-use-native-aio=1 >>"$SCRATCH/log" 2>&1 &
    server=$!
    until ask -e 'SELECT 1' >/dev/null 2>&1; do kill -0 $server || { tail -n 30 "$SCRATCH/log"; exit 1; }; sleep 0.05; done
}
trap 'kill -KILL $server 2>/dev/null || true' EXIT
start
ask -e 'SELECT @@innodb_use_native_aio, @@innodb_flush_method'
ask -e "CREATE DATABASE work; USE work;
CREATE TABLE accounts(n int PRIMARY KEY, balance int NOT NULL, note varchar(200), KEY(note)) ENGINE=InnoDB;
CREATE TABLE history(n int PRIMARY KEY AUTO_INCREMENT, account int, delta int) ENGINE=InnoDB;
CREATE TABLE old(n int PRIMARY KEY, word text) ENGINE=Aria;
CREATE TABLE older(n int PRIMARY KEY, word text) ENGINE=MyISAM;
INSERT INTO accounts SELECT seq, 0, repeat(concat('note ', seq % 97), 10) FROM seq_1_to_10000;
INSERT INTO old SELECT seq, repeat('word', seq % 50) FROM seq_1_to_2000; INSERT INTO older SELECT * FROM old;"
# Several clients, whose transactions meet on some rows.
for client in 1 2 3 4; do
    for n in $(seq 1000); do
        row=$(((n * 37 + client * 11) % 10000 + 1))
        echo "BEGIN; UPDATE accounts SET balance = balance + $n WHERE n = $row; INSERT INTO history(account, delta) VALUES ($row, $n); COMMIT;"
    done | ask work & clients+=($!)
done
wait "${clients[@]}"
ask work -e 'SELECT count(*), sum(delta) FROM history; SELECT sum(balance), md5(group_concat(balance ORDER BY n)) FROM accounts; SELECT count(*), sum(length(word)) FROM old JOIN older USING(n, word)'
ask work -e "DELETE FROM accounts WHERE n % 7 = 0; ALTER TABLE accounts ADD COLUMN more int DEFAULT 5, ALGORITHM=COPY; OPTIMIZE TABLE history; CHECK TABLE accounts, history, old, older; BEGIN; UPDATE accounts SET note = 'gone'; ROLLBACK; SELECT count(DISTINCT note), sum(more) FROM accounts"
# Everything acknowledged outlives the death of the server in the middle of work.
ask work -e 'CREATE TABLE acknowledged(client int, n int, PRIMARY KEY(client, n))'
clients=()
for client in 1 2; do
    for n in $(seq 5000); do echo "INSERT INTO acknowledged VALUES ($client, $n); SELECT $n;"; done | ask -n work >"$SCRATCH/acknowledged-$client" 2>/dev/null & clients+=($!)
done
until [[ $(wc -l <"$SCRATCH/acknowledged-1") -ge 100 && $(wc -l <"$SCRATCH/acknowledged-2") -ge 100 ]]; do sleep 0.01; done
kill -KILL $server; wait $server 2>/dev/null || true
wait "${clients[@]}" || true
start
grep -c 'Starting crash recovery\|Starting a batch to recover' "$SCRATCH/log" | sed 's/[1-9].*/recovered/'
for client in 1 2; do
    last=$(tail -n 1 "$SCRATCH/acknowledged-$client")
    ask work -e "SELECT count(*) >= $last, max(n) = count(*) FROM acknowledged WHERE client = $client"
done
ask work -e "CHECK TABLE accounts, history, acknowledged EXTENDED; SELECT count(*), sum(balance) FROM accounts; SELECT sum(delta) FROM history; DROP TABLE acknowledged"
ask -e 'SHUTDOWN'; wait $server
for table in accounts history; do innochecksum "$data/work/$table.ibd" && echo "sums of $table"; done
grep -i '\[ERROR\]' "$SCRATCH/log" || true
rm -r data; ls -A
