# The demo's use of redis-server, with few requests. $1 is a directory for sockets, $2 the
# directory to work in.
set -eu
redis=$(dirname "$0")/../../../../demo/redis
for task in write rewrite read; do
    sh "$redis" "$2" "$1" $task 300
done
