# program: configure, make -j2, gcc: zlib
# needs: make=build-essential gcc=build-essential ar=binutils gzip=gzip bzip2=bzip2 xz=xz-utils cmp=diffutils
# sources: zlib
# before: mkdir zlib; tar -xf "$SOURCES/zlib" --strip-components=1 --no-same-owner -C zlib
# version: echo "$(tar -xOf "$SOURCES/zlib" --wildcards '*/zlib.h' | sed -n 's/^#define ZLIB_VERSION "\(.*\)"/\1/p'), make $(make --version | head -n 1 | awk '{ print $NF }'), gcc $(gcc -dumpfullversion)"
# compares: every object, library, program and installed file, what configure and zlib's own tests print, what minigzip makes
# dated: zlib/contrib/ zlib/examples/ zlib/doc/
# volatile: configure.log
cd "$1/zlib"; umask 022
./configure --prefix="$1/installed"
make -j2 >made; sort made; rm made; make -s test
ls *.o *.lo | wc -l; make -q && echo nothing to do
make -s install LDCONFIG=:

# The built programs and gzip read what the other wrote.
mkdir "$1/packed"; cp *.c *.h "$1/packed"; cd "$1/packed"
export LD_LIBRARY_PATH=$1/installed/lib
for level in 1 6 9; do cat *.c >all.$level; ../zlib/minigzip -$level all.$level; gzip -t all.$level.gz; done
cat *.c | cmp - <(gzip -dc all.6.gz)
for file in [a-d]*.c; do ../zlib/minigzipsh <"$file" >"$file.gz"; gzip -dc "$file.gz" | cmp - "$file"; done
for file in z*.h; do gzip -n "$file"; ../zlib/minigzip -d "$file.gz"; cmp "$file" "../zlib/$file"; done
../zlib/minigzip -d all.9.gz; cat *.c | cmp - all.9; ../zlib/minigzip -c all.9 | ../zlib/minigzip64 -d | cksum
head -c 1000 all.6.gz >short.gz; ../zlib/minigzip -d short.gz || echo "status $?"; cksum short*; echo no >plain.gz; gzip -t plain.gz || echo "status $?"
# A program that uses the installed library.
cat >seek.c <<'END'
#include <stdio.h>
#include <string.h>
#include <zlib.h>
int main(int n, char **v)
{
    gzFile file = gzopen(v[1], "wb7"); char line[100]; long sum = 0;
    for (int i = 0; i < 100000; i++) gzprintf(file, "line %d of many\n", i);
    if (gzclose(file) != Z_OK) return 1;
    file = gzopen(v[1], "rb"); gzbuffer(file, 4096);
    for (int i = 0; i < 20; i++) { gzseek(file, (i * 7919L % 100) * 15000, SEEK_SET); gzgets(file, line, sizeof line); gzgets(file, line, sizeof line); sum = sum * 31 + line[7]; fputs(line, stdout); }
    printf("%ld %ld %d %s\n", sum, (long)gztell(file), gzeof(file), zlibVersion()); gzclose_r(file);
    file = gzopen(v[1], "ab"); gzputs(file, "appended\n"); gzclose(file); return n != 2;
}
END
gcc -O2 -I"$1/installed/include" -o seek seek.c -L"$1/installed/lib" -lz "-Wl,-rpath,$1/installed/lib"
env -u LD_LIBRARY_PATH ./seek lines.gz; gzip -dc lines.gz | tail -n 2
