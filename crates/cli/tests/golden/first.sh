# What is in the golden images, when they have been closed once.
set -e
umask 022
cd /arck
mkdir -p plain/deep/er many private sticky
for n in $(seq 300); do echo "$n" >"many/a-file-with-a-longer-name-$n"; done
for n in $(seq 1 2 300); do rm "many/a-file-with-a-longer-name-$n"; done
seq 30000 >plain/large
head -c 5000 plain/large >plain/small
: >plain/empty
truncate -s 1M plain/holes
printf x | dd of=plain/holes bs=1 seek=700000 conv=notrunc status=none
ln plain/small plain/deep/second-name
ln -s ../small plain/deep/link
mkfifo plain/pipe
echo secret >private/secret
chmod 0600 private/secret
chmod 0700 private
chmod 1777 sticky
chmod 2755 plain/deep
chown 1234:4321 plain/small sticky
setfattr -n user.colour -v blue plain/large
setfattr -n user.shape -v round plain/deep
touch -hd '2001-02-03 04:05:06.789 UTC' plain/large plain/deep/link plain/empty
touch -d '1969-12-31 23:00:00.5 UTC' plain/deep
