# What is not folded when the machine fails: of what is verified already, and of what is new.
set -e
umask 022
cd /arck
mkdir new
seq 5000 >new/numbers
echo more >>plain/small
mv plain/deep/er new/from-elsewhere
rm plain/empty
truncate -s 100000 plain/large
chmod 0640 new/numbers
touch -d '2002-03-04 05:06:07 UTC' new/numbers plain/small plain/large
