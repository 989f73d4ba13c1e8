# program: restic
# needs: restic=restic diff=diffutils
# version: restic version | awk '{ print $2 }'
# compares: a repository that is made, two backups, checks of all that is in it, what is restored byte by byte, what is left after forgetting one
# forms: run mount
# restic is Go's. The repository's files have random names: they are gone in the end.
cd "$1"
export RESTIC_PASSWORD=secret RESTIC_REPOSITORY=$1/repository RESTIC_CACHE_DIR=$SCRATCH/cache
files() {
    mkdir -p source/deep/er
    seq 20000 >source/numbers
    for i in $(seq 150); do echo "file $i of many" >"source/deep/$i"; done
    head -c 3000000 /dev/zero | tr '\0' x >source/large
    truncate -s 1M source/sparse
    ln source/numbers source/deep/er/same
    ln -s ../numbers source/deep/link
    chmod 640 source/numbers
    touch -d 2001-02-03T04:05:06.789 source/deep/1 source/deep
}
files
# Its every start takes most of a second: the key is made expensively.
backup() { restic backup --json source | tr , '\n' | sed -n 's/.*"snapshot_id":"\([0-9a-f]*\)".*/\1/p'; }
restic -q init
first=$(backup)
cp -a source before
echo more >>source/numbers; rm source/deep/7; mv source/large source/moved
second=$(backup)
restic check --read-data 2>&1 | grep -x 'no errors were found'
restic -q restore "$first" --target first
restic -q restore "$second" --target second
listing() { (cd "$1"; find . \! -type d -printf '%p %s %m %n %l %t\n' -o -printf '%p %m\n' | sort; find . -type f -exec cksum {} + | sort -k 3); }
for of in first:before second:source; do
    at=${of%:*}/source
    [[ -d $at ]] || at=${of%:*}$1/source
    listing "$at" >"$SCRATCH/restored"; listing "${of#*:}" | cmp - "$SCRATCH/restored"; echo "restored: $(wc -l <"$SCRATCH/restored") lines"
done
restic -q forget --prune "$first"; restic check 2>&1 | grep -x 'no errors were found'; ls repository/snapshots | wc -l
find repository -mindepth 1 -maxdepth 1 | sort
chmod -R u+w repository; rm -r repository first second before
