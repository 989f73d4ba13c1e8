# program: vim, ed
# needs: vim=vim ed=ed
# version: echo "$(vim --version | sed -n '1s/.*IMproved \([0-9.]*\).*/\1/p'), ed $(ed --version | awk 'NR == 1 { print $NF }')"
# compares: saves over the old file and by rename, backups, swap files and recovery from one after SIGKILL, undo files
# volatile: .un~ .swp /info
cd "$1"; umask 022
# A configuration of its own, none of the host's.
vi() { vim -u NONE -i NONE -es -N "$@"; }
seq 500 >text; chmod 640 text; ln text linked; ln -s text soft
inode() { stat -c %i "$1"; }
echo "--- vim: in place, and by a new file that is renamed"
before=$(inode text); vi -c 'set backupcopy=yes nobackup nowritebackup' -c '1,10s/^/x/' -c 'w' -c 'q!' text </dev/null; [ "$(inode text)" = "$before" ] && echo same; head -n 2 linked
vi -c 'set backupcopy=no writebackup' -c '11,20s/^/y/' -c 'wq' text </dev/null; [ "$(inode text)" = "$before" ] || echo other; sed -n 11p linked text; stat -c '%a %h %n' text linked
vi -c 'set backup backupext=.orig backupdir=.' -c '%s/9/nine/g' -c 'wq' soft </dev/null; ls -A; readlink soft; cksum text text.orig 2>/dev/null || cksum text soft.orig
vi -c 'set undofile undodir=.' -c '1delete' -c 'wq' text </dev/null; vi -c 'set undofile undodir=.' -c 'undo' -c 'wq' text </dev/null; head -n 1 text; ls -A | grep -c 'un~'
vi -c 'r !seq 3' -c 'w >>text' -c '1,5w! part' -c 'saveas other' -c 'x' text </dev/null; wc -l text part other; vi -c 'argdo %s/1/one/e | update' -c qa part other </dev/null; cksum part other
vi -c 'w ++ff=dos dos' -c 'q!' part </dev/null; cksum dos; echo 'set nomodifiable' >rc; vim -es -N -u rc -i info -c 'mksession session' -c 'wviminfo' -c 'qa!' text </dev/null || echo "status $?"; grep -c edit session; ls info
chmod 444 part; vi -c 'w' -c 'q!' part </dev/null || echo "status $?"; vi -c 'w!' -c 'q!' part </dev/null; stat -c '%a' part; mkdir sub; vi -c 'w sub/none/x' -c 'q!' part </dev/null || echo "status $?"
echo "--- a swap file, and what is recovered from it"
{ vim -u NONE -i NONE -es -N -c 'set directory=. updatecount=1' -c '1,50s/^/lost /' -c 'preserve' -c "call writefile(['ready'], '$SCRATCH/ready')" -c "!kill -KILL \$PPID" text </dev/null >/dev/null 2>&1; } 2>/dev/null || echo "status $?"
cat "$SCRATCH/ready"; ls -A | grep swp; head -n 1 text
vim -u NONE -i NONE -es -N -c 'set directory=.' -c 'recover text' -c 'w! recovered' -c 'qa!' </dev/null >/dev/null 2>&1 || true; grep -c '^lost' recovered; rm -f .text.swp
vim -u NONE -i NONE -es -N -c 'set directory=. updatecount=1' -c 'edit text' -c 'preserve' -c '!ls -A | grep -c swp' -c 'qa!' </dev/null; ls -A | grep swp || echo no swap file
echo "--- ed"
printf '%s\n' ',s/1/ed/g' w '1,3p' '$a' appended . 'w copy' 'r !echo from a shell' 'w !wc -l' 'W copy' 'e text' '1d' Q | ed -s other; tail -n 2 copy
printf '%s\n' a 'a line' . 'w new' 'f' q | ed -s; cat new; printf '%s\n' 'g/ed/s//ED/g' u 'g/lost/d' '1m$' '1,2t$' 'wq' | ed -s copy; cksum copy; printf '%s\n' 'w none/x' q | ed -s copy || echo "status $?"
diff -e text other >script || true; { cat script; echo 'w patched'; } | ed -s text; cmp patched other && echo patched
sed -i.bak 's/one/Sed/' copy; cksum copy copy.bak; perl -i -pe 's/Sed/perl/' copy; cksum copy
