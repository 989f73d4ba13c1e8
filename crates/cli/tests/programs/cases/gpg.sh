# program: gpg
# needs: gpg=gnupg gpg-agent=gpg-agent gpgconf=gnupg
# version: gpg --version | sed -n '1s/.* //p'
# compares: keys that are made, signatures and encrypted files that are read again, keys that are exported and imported, the agent, whose sockets are on the pool
# user: nobody
# forms: run alone mount
# As a user for whom no session manager keeps a directory, so that the agent's sockets are in its home.
cd "$1"
trap 'gpgconf --kill all 2>/dev/null || true' EXIT
export GNUPGHOME=$1/home
mkdir -m 700 home
# Else most of the time goes to making passphrases expensive.
echo 's2k-count 65536' >home/gpg-agent.conf
gpg() { command gpg --batch --quiet --no-tty --pinentry-mode loopback --passphrase secret --s2k-count 65536 --no-auto-key-locate "$@" 2>&1; }
gpg --quick-generate-key 'One <one@example.org>' ed25519 sign never | grep -v 'revocation certificate stored' || true
gpg --quick-generate-key 'Two <two@example.org>' rsa2048 default never | grep -v 'revocation certificate stored' || true
first=$(command gpg --batch --with-colons --list-keys one@example.org | awk -F : '$1 == "fpr" { print $10; exit }')
gpg --quick-add-key "$first" cv25519 encr never
second=$(command gpg --batch --with-colons --list-keys two@example.org | awk -F : '$1 == "fpr" { print $10; exit }')
gpg --quick-add-key "$second" rsa2048 encr never
command gpg --batch --with-colons --list-secret-keys | awk -F : '$1 == "sec" || $1 == "ssb" { print $1, $3, $4, $12 }'
[[ -S home/S.gpg-agent ]] && echo "the agent's socket is there: $(gpgconf --list-dirs agent-socket | sed "s,^$1/,,")"
gpg-connect-agent 'GETINFO socket_name' /bye | sed "s, $1/, ,"
seq 200000 >data
gpg -u one@example.org --detach-sign data
gpg -u two@example.org --armor --clearsign -o data.asc data
gpg --verify data.sig data | grep -o 'Good signature from "[^"]*"'
gpg --verify data.asc | grep -o 'Good signature from "[^"]*"'
echo more >>data
gpg --verify data.sig data | grep -o 'BAD signature from "[^"]*"'
gpg --trust-model always -r one@example.org -r two@example.org --sign --encrypt -o data.gpg data
gpg --decrypt -o read data.gpg >"$SCRATCH/said"; grep -o 'Good signature from "[^"]*"' "$SCRATCH/said"; cmp data read
gpg --symmetric --cipher-algo AES256 -o closed data; gpg --decrypt -o opened closed >"$SCRATCH/said"; cmp data opened
if command gpg --batch --quiet --pinentry-mode loopback --passphrase wrong --decrypt closed >"$SCRATCH/said" 2>&1; then echo "opened by a wrong word"; fi
# Several at once have one agent, and take turns at the ring of keys.
# What it says of a lock that another has just let go of is a matter of time: it tries again.
locks() { grep -v 'lockfile\|waiting for lock' || true; }
for i in 1 2 3 4; do gpg -u two@example.org -o "many-$i" --sign data | locks & done; wait
for i in 1 2 3 4; do gpg -o "many-$i.read" --decrypt "many-$i" | grep -o 'Good signature'; cmp data "many-$i.read"; done
# A gpg moves the old ring of keys away before the new one is moved there, and another that looks in between ends: it tries again.
generate() { for _ in 1 2 3 4 5 6; do gpg --quick-generate-key "Many $1 <many$1@example.org>" ed25519 sign never >/dev/null && return; done; }
for i in 1 2; do generate "$i" & done; wait
command gpg --batch --list-keys --with-colons 2>/dev/null | grep -c ^pub
gpg --armor --export >public; gpg --export-secret-keys --armor two@example.org >private
# Another home reads them, by an agent of its own.
export GNUPGHOME=$1/other
mkdir -m 700 other
echo 's2k-count 65536' >other/gpg-agent.conf
gpg --import public
gpg --import private
command gpg --batch --list-keys --with-colons 2>/dev/null | grep -c ^pub
command gpg --batch --list-secret-keys --with-colons 2>/dev/null | grep -c ^sec
gpg --trust-model always --decrypt -o elsewhere data.gpg >"$SCRATCH/said"; cmp data elsewhere
gpgconf --kill all
# An agent that ends takes its sockets away one after the other.
for _ in $(seq 100); do compgen -G 'other/S.*' >/dev/null || break; sleep 0.05; done
ls -A other | sort
export GNUPGHOME=$1/home
gpgconf --kill all
for _ in $(seq 100); do compgen -G 'home/S.*' >/dev/null || break; sleep 0.05; done
find home other -name 'S.*' -o -name '*.lock' -o -name '.#*'
rm -r home other; rm -f data.* many-* public private closed
ls
