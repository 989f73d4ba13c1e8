# program: rsync
# needs: rsync=rsync
# version: rsync --version | head -n 1 | awk '{ print $3 }'
# compares: two copies with all links, times, modes and attributes; what each run lists as changed
# dated: copy/ across/ back/ old/
cd "$1"; umask 022
mkdir -p source/{a,b,c/deep/er}
awk 'BEGIN { for (i = 1; i <= 300; i++) { file = "source/a/" i; for (j = i; j <= i * 11; j++) print j >file; close(file) } }'
for i in $(seq 25 25 300); do ln "source/a/$i" "source/b/hard-$i"; ln -s "../a/$i" "source/b/soft-$i"; cp "source/a/$i" "source/c/deep/$i"; done
seq 300000 >source/large; truncate -s 1M source/hole; chmod 640 source/a/1; chmod 700 source/c; chmod 6755 source/a/3; mkfifo source/pipe
find source -depth -exec touch -h -d '2014-04-04 04:04:04.123456789' {} +
rsync -aHi --stats source/ copy/ | grep -v '[Ss]peedup\|sent\|List\|bytes/sec\|Total bytes\|File list'
rsync -aHi source/ copy/
# A change of every kind between the two.
echo changed >source/a/2; rm source/a/5; mv source/a/6 source/c/six; chmod 600 source/a/7; touch -d '2014-05-05' source/a/8; ln source/a/9 source/c/nine; rm source/b/soft-50; ln -s elsewhere source/b/soft-50; touch -h -d '2014-05-05' source/b/soft-50; mkdir source/new; echo new >source/new/file
printf XYZ | dd of=source/large bs=1 seek=1000000 conv=notrunc status=none; seq 100 >>source/large; touch -d '2014-06-06' source/a/2 source/large source/new/file source/new source/a source/b source/c
rsync -aHi --delete --no-whole-file source/ copy/; rsync -aHi --delete source/ copy/; diff -r --no-dereference -x pipe source copy
# In place, appended, with backups, by sum, between the host and the pool, partial, excluded, from a list.
seq 1000 >>source/large; touch -d '2014-07-07' source/large; rsync -aHi --inplace --no-whole-file source/large copy/; cmp source/large copy/large; seq 10 >>source/large; touch -d '2014-08-08' source/large; rsync -ai --append-verify source/large copy/
echo twice >source/a/2; touch -d '2014-06-06' source/a/2; rsync -aHi source/ copy/; echo agains >source/a/2; touch -d '2014-06-06' source/a/2; rsync -aHci --backup --backup-dir="$1/old" source/ copy/; find old -type f
rsync -aHS source/ "$SCRATCH/copy/"; rsync -aHSi "$SCRATCH/copy/" across/ | wc -l; [ "$(stat -c %b across/hole)" -lt 500 ] && echo a hole; rsync -aHi --link-dest="$1/copy" source/ back/ | wc -l; find back -type f -links +1 | wc -l
rsync -ai --exclude='*1*' --include='a/' --prune-empty-dirs --remove-source-files "$SCRATCH/copy/a" . | wc -l; find "$SCRATCH/copy/a" -type f | wc -l; printf 'a/20\nc/deep/er\nnone\n' | rsync -ai --files-from=- source/ listed/ 2>/dev/null || echo "status $?"; rsync --list-only -r source/c/ | awk '{ print $1, /^d/ ? "" : $2, $5 }'
rsync -ai --partial-dir=.part --delay-updates --fsync source/b/ delayed/ 2>/dev/null | wc -l; ls -A delayed | wc -l
touch -d 2014-07-07 copy across back old old/* 2>/dev/null || true
