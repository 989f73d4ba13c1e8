# program: gcc, g++, ar, ld
# needs: gcc=build-essential g++=build-essential make=build-essential
# version: gcc -dumpfullversion
# compares: objects, archives, shared libraries and programs byte by byte, output of programs run from the pool
exec /bin/bash "$APPLICATIONS/gcc.sh" "$1"
