# program: tar
# needs: tar=tar gzip=gzip setfattr=attr
# version: tar --version | head -n 1 | awk '{ print $NF }'
# compares: the archive byte by byte, trees with times, modes, links, holes, extended attributes; incremental backups
# dated: unpacked/ listed/ second/
cd "$1"
umask 022
mkdir -p source/{bin,lib/deep/er,share}
awk 'BEGIN { for (i = 1; i <= 400; i++) { file = "source/share/" i; for (j = i; j <= i * 9; j++) print j >file; close(file) } }'
for i in $(seq 40 40 400); do mkdir "source/lib/$i"; ln "source/share/$i" "source/lib/$i/hard"; ln -s "../../share/$i" "source/lib/$i/soft"; done
truncate -s 2M source/hole; printf x | dd of=source/hole bs=1 seek=1500000 conv=notrunc status=none; chmod 4755 source/share/1; chmod 700 source/lib/deep; mkfifo source/pipe; setfattr -n user.a -v b source/share/2
find source -depth -exec touch -h -d '2015-05-05 05:05:05.987654321' {} +
tar --format=posix --sort=name --pax-option=exthdr.name=%d/%f,delete=atime,delete=ctime --xattrs -cf all.tar source
tar -df all.tar && echo compared
mkdir unpacked; tar -xpf all.tar --xattrs -C unpacked; getfattr -d unpacked/source/share/2; diff -r --no-dereference -x pipe source unpacked/source; 
# Not kept: the names in archives of sparse files have the number of the process.
tar -cSf sparse.tar source/hole; stat -c %s sparse.tar; mkdir sparse; tar -xpSf sparse.tar -C sparse; cmp source/hole sparse/source/hole; [ "$(stat -c %b sparse/source/hole)" -lt 1000 ] && echo a hole; rm -r sparse.tar sparse
tar -tvf all.tar | awk '{ print $1, $3, $NF }' | cksum
tar -xpf all.tar -C unpacked --overwrite; tar -xpf all.tar -C unpacked --unlink-first --recursive-unlink; tar -xf all.tar -C unpacked --skip-old-files; tar -xf all.tar -C unpacked --keep-newer-files 2>/dev/null; tar -xOf all.tar source/share/7 | wc -l
mkdir listed; tar -xf all.tar -C listed --wildcards 'source/lib*' --transform 's,^source,x,' --exclude='*/1*'; find listed | wc -l
cat all.tar | tar -xpf - -C listed source/lib; gzip -9nc all.tar >all.tar.gz; tar -xzf all.tar.gz -C listed --one-top-level=top; tar -czf - source | tar -tzf - | wc -l
# Incremental: what has come, changed, gone.
tar -g snapshot -cf level0.tar source; rm source/share/9; echo more >>source/share/8; mkdir source/new; echo new >source/new/file; mv source/share/10 source/new/ten
touch -d 2015-06-06 source/share/8 source/new/file source/new source/share source
tar -g snapshot -cf level1.tar source; tar -tf level1.tar | sort
mkdir second; tar -g /dev/null -xf level0.tar -C second; tar -g /dev/null -xf level1.tar -C second; (cd source && find . | sort) >a; (cd second/source && find . | sort) | diff a - && echo alike
cp all.tar grown.tar; tar -rf grown.tar source/new; tar -uf grown.tar source; tar -tf grown.tar | wc -l; rm grown.tar; tar -cf small.tar source/share/1 source/share/2 source/share/3; tar --delete -f small.tar source/share/2; tar -tf small.tar
find listed unpacked second -type d -exec touch -d 2016-01-01 {} +; rm level?.tar snapshot a; rm -r source/new
