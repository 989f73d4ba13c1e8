# program: sqlite3
# needs: sqlite3=sqlite3
# version: sqlite3 --version | awk '{ print $1 }'
# compares: output of all journal modes, of transactions cut off by SIGKILL; every database byte by byte
exec /bin/bash "$APPLICATIONS/sqlite.sh" "$1"
