# program: coreutils, find
# needs: cp=coreutils find=findutils xargs=findutils getfattr=attr
# version: cp --version | head -n 1 | awk '{ print $NF }'
# compares: trees with times, modes, links, holes; output of 40 commands
# dated: copy/ moved/ dated/
umask 022
cd "$1"
mkdir -p tree/{a,b,c}/{1,2,3}/deep
n=0
for directory in tree/*/* tree/*/*/deep; do
    for i in {1..20}; do n=$((n + 1)); seq "$n" $((n + i * 37)) >"$directory/file $i"; done
done
ln "tree/a/1/file 1" tree/b/hard; ln -s ../a/1 tree/b/soft; ln -s nowhere tree/c/broken; ln -sf ../a/2 tree/b/soft; ln -T tree/b/hard tree/c/harder
truncate -s 3M tree/hole; printf end | dd of=tree/hole bs=1 seek=2000000 conv=notrunc status=none; mkfifo tree/pipe
chmod 600 "tree/a/1/file 2"; chmod -R go-rx tree/c/3; chmod u+s,g+s "tree/a/2/file 3"; chmod 1777 tree/b/3; chown 0:0 tree/b/3 2>/dev/null || true
find tree -depth -exec touch -h -d '2011-12-13 14:15:16.123456789' {} +
getfattr -d tree/hole >/dev/null; setfattr -n user.note -v 'of the hole' tree/hole

echo "--- cp"
cp -a tree copy; diff -r --no-dereference -x pipe tree copy; getfattr -d copy/hole; du --apparent-size -sb copy/hole
[ "$(stat -c %b copy/hole)" -lt 1000 ] && echo 'a hole was copied as one'
cp -r --preserve=mode,timestamps tree/a copy/again; cp -u tree/a/1/file* copy/again/1; cp -l tree/b/hard copy/linked; cp -s "$1/tree/b/hard" copy/pointing; readlink copy/pointing | sed "s,$1,D,"
cp --sparse=always tree/hole copy/sparse; cp --sparse=never tree/hole copy/full; cmp copy/sparse copy/full; cp --backup=numbered tree/b/hard copy/linked 2>&1 || true; cp --backup=numbered tree/a/2/file\ 4 copy/linked; cp --remove-destination tree/b/hard copy/pointing; cp --parents tree/a/1/file\ 5 copy; cp --reflink=auto tree/hole copy/auto
cp -a /etc/passwd /etc/alternatives copy 2>/dev/null && ls copy | wc -l; rm -r copy/alternatives copy/passwd
cp tree/none copy 2>&1 || echo "status $?"; cp tree copy 2>&1 || echo "status $?"; cp -n tree/b/hard copy/full || true
find copy -exec touch -h -d '2012-01-01' {} +

echo "--- mv, ln, install"
mkdir moved; mv copy/again moved; mv -n tree/b/hard moved/again/1/file\ 1 || true; mv -T moved/again moved/renamed; mv -b copy/linked moved; mv -v copy/full copy/auto moved | sort; mv moved moved/renamed 2>&1 || echo "status $?"
cp -a tree "$SCRATCH/out"; mv "$SCRATCH/out" moved/back; ls "$SCRATCH"; mv moved/back/c/2 "$SCRATCH/two"; ls "$SCRATCH/two"; mv "$SCRATCH/two" moved/back/c/2
install -d -m 750 installed/bin; install -m 755 -D tree/a/1/file\ 1 installed/lib/x/y/z; install -p -m 640 tree/a/1/file\ 2 tree/a/1/file\ 3 installed/bin; install -C tree/a/1/file\ 3 installed/bin; install -s /bin/true installed/bin 2>/dev/null || true; rm -f installed/bin/true
ls -lR --time-style=+%Y installed | awk '{ if (/^d/) $5 = "-"; if (/^total/) $2 = "-"; print }'
mkdir dated; touch -d '2001-02-03' dated/one; touch -r dated/one dated/two; touch -a -d 2005-01-01 dated/two; touch -m -d '1999-12-31 23:59:59.5' dated/three; touch -c dated/none; ln -s none dated/link; touch -h -d 2003-01-01 dated/link; touch -d 2002-01-01 dated; stat -c '%n %y' dated/* dated

echo "--- sort with temporary files, split, dd, truncate, shred"
mkdir tmp; seq 200000 | shuf --random-source=/bin/bash >shuffled; sort -n -S 1M -T tmp --parallel=2 shuffled -o sorted; cksum sorted; ls tmp; sort -n -S 1M -T tmp -m -u sorted shuffled 2>/dev/null | wc -l || true; sort -c sorted -n && echo in order; sort -n -o shuffled -S 512K -T tmp shuffled; cmp shuffled sorted
split -l 15000 -d -a 3 sorted part-; ls part-* | wc -l; cat part-* | cmp - sorted; split -b 100K --filter='cksum >$FILE.sum' sorted filtered-; cat filtered-*.sum; csplit -s -f cut- sorted 1000 '{3}'; wc -l cut-*; rm part-0* filtered-*
dd if=sorted of=dd bs=4k count=20 skip=3 seek=7 status=none; cksum dd; dd if=/dev/zero of=dd bs=1k seek=500 count=1 conv=notrunc,fsync status=none; dd if=sorted of=dd oflag=append conv=notrunc bs=64k status=none; dd if=sorted of=direct bs=64k oflag=direct iflag=fullblock status=none; cmp sorted direct; dd if=dd bs=1M iflag=nofollow,noatime status=none | cksum; dd if=sorted bs=999 conv=ucase,sync status=none | tail -c 10 | od -c; dd if=sorted of=sparse bs=4096 conv=sparse status=none
truncate -s 100 dd; truncate -s +50 dd; truncate -s '%4096' dd; truncate -r sorted direct; truncate -o -s 2 dd 2>/dev/null; stat -c '%n %s' dd direct; fallocate -l 100000 -n dd; fallocate -p -o 0 -l 4096 sparse; fallocate -d sparse; cksum sparse
cp sorted secret; shred -n 2 -z -s 10000 secret; head -c 10000 secret | tr -d '\0' | wc -c; shred -u secret; ls secret 2>&1 || true

echo "--- lists"
find tree -type f -size +1k -newermt 2011-12-13 -printf '%P %s %m %n\n' | sort | cksum; find tree -links +1 -type f | sort; find tree -perm -4000; find tree -xtype l | sort; find tree -empty | sort; find tree -name 'file 1*' -prune -o -type f -print | wc -l; find -L tree -samefile tree/b/hard | sort; find tree -inum "$(stat -c %i tree/b/hard)" | wc -l
find tree -type f -print0 | sort -z | xargs -0 -n 50 -P 2 cksum | sort | cksum; find tree/a -type f -exec sh -c 'echo "$#"' sh {} +; cp -a tree deleted; find deleted -name '*7' -delete; find deleted -depth -type d -name deep -execdir rm -r {} +; find deleted | wc -l; find deleted -type f -okdir true {} \; </dev/null 2>/dev/null | wc -l
ls -laR tree | grep -v '^total' | awk '$1 !~ /^d/ { print $1, $2, $5, $NF }' | sort | cksum; ls -1U tree | sort | tr '\n' ' '; ls -lS tree/a/1 | awk '/^-/ { print $5 }' | head -n 3; dir tree; ls -i tree/b/hard tree/c/harder | awk '{ print $1 }' | uniq | wc -l; ls tree/none 2>&1 || echo "status $?"
du -s --apparent-size -B1 tree/a/1/file* | awk '{ s += $1 } END { print s }'; du -a --inodes tree | tail -n 1; du --exclude='*1*' -l --max-depth=0 --apparent-size -b tree/a/1/file* | wc -l; stat -c '%n %F %a %h %N' tree/* tree/b/* | sed "s,$1,D,"; stat -c '%n %s' tree/hole tree/b/hard tree/b/soft tree/pipe
wc -lwc sorted; tac sorted | head -n 2; nl sorted | tail -n 1; tail -c +1300000 sorted | head -c 20 | od -An -tx1; head -n -199995 sorted; (tail -n 1 -f growing --pid=$$ >followed 2>/dev/null & p=$!; echo x >growing; sleep 0.1; kill $p; wait $p) 2>/dev/null || true; rm -f growing followed
comm -12 <(sort sorted) <(sort cut-00) | wc -l; join <(sort cut-00) <(sort cut-00) | wc -l; paste cut-00 cut-00 | tail -n 1; uniq -c cut-00 | wc -l; tsort <<<'a b b c' | tr '\n' ' '; md5sum cut-0* >sums; md5sum -c --quiet sums && echo sums; sha256sum -c <(sha256sum cut-00) ; b2sum cut-00 | cut -c 1-10; realpath tree/b/soft/../1 | sed "s,$1,D,"; readlink -f tree/b/soft | sed "s,$1,D,"; pathchk tree/a && mktemp -p tmp -u XXXX | wc -c; d=$(mktemp -d -p tmp); rmdir "$d"; f=$(mktemp -p tmp); rm "$f"; sync tree/hole; sync -f tree; mkdir -p p/q/r; rmdir -p p/q/r; rmdir tree 2>&1 || echo "status $?"; chmod -R a+rX,u-w moved; rm -rf moved/renamed/2; chmod -R u+w moved; find moved -depth -type d -exec touch -d 2013-01-01 {} +; link cut-00 linked; unlink cut-01; test sorted -ef shuffled || echo different; tee -a cut-00 cut-02 <cut-03 | wc -l; truncate -s 0 cut-03; expand cut-00 | cksum; env -C tree/a pwd | sed "s,$1,D,"; (cd tree/a/../b && pwd -P) | sed "s,$1,D,"; timeout 5 cat sorted | cksum; rm -ri tree/a </dev/null 2>/dev/null || true; rm -rf tree/c deleted; ls | sort | tr '\n' ' '
