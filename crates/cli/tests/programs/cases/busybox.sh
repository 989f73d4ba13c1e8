# program: busybox (static)
# needs: /bin/busybox=busybox-static
# version: /bin/busybox | sed -n '1s/.* v\([0-9.]*\).*/\1/p'
# compares: what its shell and 40 of its tools do with files, all static: redirections, pipes, here-documents, background jobs, archives, edits in place; a copy of it on the pool under its tools' names
# forms: run alone mount
# Debian's busybox-static has no libc that a library could be loaded into. Its shell begins in the pool.
cd "$1"
mkdir bin
cp /bin/busybox bin/busybox
for tool in sh cat sort sed awk find tar gzip gunzip cp mv ln ls rm mkdir touch stat wc head tail tr cut grep xargs dd chmod cmp sha256sum seq test du sync truncate mktemp realpath readlink uniq tac rmdir echo; do
    ln -s busybox "bin/$tool"
done
cat >"$SCRATCH/script" <<'END'
set -eu
mkdir -p tree/a/b
seq 5000 >tree/numbers
seq 3 -1 1 >>tree/numbers; tail -n 4 tree/numbers
cat >tree/here <<TEXT
here: $((6 * 7))
TEXT
cat tree/here
sort -rn tree/numbers | head -n 3
sed -i 's/^4999$/changed/' tree/numbers; grep -n changed tree/numbers
awk '{ all += $1 } END { print all }' tree/numbers
for n in $(seq 200); do echo "$n" >"tree/a/b/$n"; done
find tree -type f | wc -l
find tree -name '1?' | sort | xargs cat | tr '\n' ' '; echo
ln tree/here tree/hard; ln -s here tree/link; stat -c '%h %s %F' tree/hard; readlink tree/link; realpath tree/link | sed 's/.*\///'
chmod 640 tree/here; touch -d '2001-02-03 04:05:06' tree/here
tar -cf tree.tar tree; tar -tf tree.tar | wc -l
gzip <tree.tar >tree.tar.gz; mkdir unpacked; gunzip <tree.tar.gz | tar -x -C unpacked
cmp unpacked/tree/numbers tree/numbers && stat -c '%a %y' unpacked/tree/here
dd if=tree/numbers of=part bs=100 skip=3 count=5 2>/dev/null; dd if=tree/here of=part bs=1 seek=50 conv=notrunc 2>/dev/null; sha256sum part
truncate -s 1M sparse; stat -c '%s %b' sparse
cp -a tree copy; mv copy/a moved; rm -r copy; ls moved/b | wc -l
(exec 3>>log; for n in 1 2 3; do echo "third $n" >&3; done; echo same >&3)
{ for n in $(seq 100); do echo "one $n" >>both; done; } & { for n in $(seq 100); do echo "two $n" >>both; done; } & wait
sort both | uniq | wc -l; rm both
for n in 1 2 3 4; do
    (for turn in $(seq 10); do
        until mkdir lock 2>/dev/null; do :; done
        read n <count; echo $((n + 1)) >count
        rmdir lock
    done) &
done; wait; cat count
exec 4<tree/numbers; read first <&4; read second <&4; echo "$first $second"; exec 4<&-
cd tree/a; pwd | sed 's/.*\/tree/tree/'; cd ../..; ls -A | sort
if cat nothing 2>/dev/null; then exit 1; fi
rm -r unpacked/tree/a tree.tar tree.tar.gz
END
echo 0 >count
PATH=$1/bin bin/sh "$SCRATCH/script" >"$SCRATCH/out" 2>&1 || { cat "$SCRATCH/out"; exit 1; }
cat "$SCRATCH/out"
# The host's, and both kinds of program in one pipe and in one file.
seq 100 | /bin/busybox tee teed | sort -rn | /bin/busybox head -n 2
{ echo begin; /bin/busybox echo middle; echo end; } >mixed; cat mixed
/bin/busybox sh -c 'echo from the other >>mixed; bash -c "echo and back >>mixed"'; cat mixed
diff <(find . -type f | sort) <(/bin/busybox find . -type f | sort)
