# program: bash
# needs: bash=bash flock=util-linux
# version: bash -c 'echo ${BASH_VERSION%%(*}'
# compares: output, files of redirections, here-documents, pipes, background jobs, coprocesses, traps, #! scripts
cd "$1"
mkdir all pipes jobs scripts

# Redirections, here-documents, expansions: the script that the library's own tests have.
bash "$APPLICATIONS/bash.sh" "$1/all" 2>&1

cd "$1/pipes"
seq 2000 | tee plain | sort -r | tee reversed | while read -r line; do echo "$((line * 3))"; done >tripled
wc -l plain reversed tripled
cat plain | { head -n 3 >head; cat >rest; }; tail -n 1 rest
set +e; false | true | cat missing 2>errors | sort; echo "${PIPESTATUS[*]}"; set -e; cat errors
exec 3<plain 4>out 5>&4; read -r a <&3; read -r b <&3; echo "$a $b" >&4; cat <&3 >&5; exec 3<&- 4>&- 5>&-; cksum out
for i in 1 2 3; do cat <<END
$i: $(cat <<INNER
inner $i $(wc -l <plain)
INNER
)
END
done >here; cat here
cat <<-'END' >quoted
	$not expanded `at all`
END
cat quoted
{ { echo to-three >&3; echo to-out; echo to-err >&2; } 2>&1 | sed 's/^/piped /'; } 3>third; cat third
diff <(sort plain) <(sort -r reversed | sort) && echo alike
yes | head -n 10000 | md5sum

cd "$1/jobs"
# Several at once, all appending to one file by descriptors that they inherited, and each to its own.
exec 3>>appended
for job in 1 2 3 4; do
    (for i in {1..100}; do echo "job $job line $i" >&3; echo "$i" >>own-$job; done; exit "$job") &
    numbers[job]=$!
done
for job in 1 2 3 4; do wait "${numbers[job]}" && status=0 || status=$?; echo "job $job: $status"; done
exec 3>&-
sort -V appended | cksum; sort -V -o appended appended
coproc COUNTER { while read -r line; do echo "${#line}" | tee -a lengths; done; }
for word in a bb ccc dddd; do echo $word >&"${COUNTER[1]}"; read -r length <&"${COUNTER[0]}"; echo "$word $length"; done
exec {COUNTER[1]}>&-; wait
sleep 30 & echo "$!" >number; kill -TERM "$(<number)"; wait "$(<number)" && status=0 || status=$?; echo "killed: $status"; rm number
(trap 'echo trapped >trap; exit 3' TERM; echo ready >trap-ready; while :; do sleep 0.01; done) & trapped=$!
until [[ -s trap-ready ]]; do sleep 0.01; done; kill -TERM $trapped; wait $trapped && status=0 || status=$?; echo "$status $(<trap)"
nohup bash -c 'echo detached >detached' >/dev/null 2>&1 & wait
cat detached
# Locks of files and of a directory made.
for job in 1 2 3; do (for _ in {1..30}; do until mkdir lock 2>/dev/null; do sleep 0.001; done; n=$(cat count 2>/dev/null || echo 0); echo $((n + 1)) >count; rmdir lock; done) & done; wait
cat count
for job in 1 2 3; do (for _ in {1..30}; do flock locked bash -c 'n=$(cat flocked 2>/dev/null || echo 0); echo $((n + 1)) >flocked'; done) & done; wait
cat flocked

cd "$1/scripts"
printf '#!/bin/sh\necho "sh: $0 $*"; exec ./second "$@" last\n' >first
printf '#!/usr/bin/env bash\necho "bash: ${0##*/} $# ${*: -1}"; cat "$0" | wc -l; exit 7\n' >second
printf '#!%s/scripts/first\n' "$1" >third
chmod +x first second third
./first a b | sed "s,$1,D," || true; PATH=$PWD:$PATH second x || echo "status $?"
ln -s first link; ./link c | sed "s,$1,D,"
cp /bin/ls listing; ./listing -1; (exec -a other ./listing first); cp /bin/bash shell; ./shell -c 'echo "from the pool: $((6 * 7))"; ./listing | wc -l'
rm listing shell
(cd /; cat "$1/scripts/second" | bash -s p q | wc -c) || true
(umask 027; mkdir -p deep/er; : >deep/er/file); stat -c '%a %n' deep deep/er deep/er/file
eval 'x=$(<second)'; echo "${#x}"; source ./sourced 2>/dev/null || echo 'int=5; function double { echo $((int * 2)); }' >sourced; source ./sourced; double
select_from() { local PS3=; select word in one two; do echo "$word"; break; done <<<2 2>/dev/null; }; select_from
