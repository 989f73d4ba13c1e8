# Compiling, archiving, linking and running, with sources, headers and results in one directory.
set -eu
cd "$1"
mkdir -p include/deep source build
for i in 1 2 3 4 5 6; do
    printf '#pragma once\n#include "deep/%d.h"\nint part_%d(int);\n' $i $i >include/part_$i.h
    printf '#define FACTOR_%d %d\n' $i $((i * 7)) >include/deep/$i.h
    printf '#include <stdio.h>\n#include <string.h>\n#include "part_%d.h"\nint part_%d(int x) { char t[64]; sprintf(t, "%%d", x * FACTOR_%d); return (int)strlen(t) + x * FACTOR_%d; }\n' $i $i $i $i >source/part_$i.c
done
cat >source/main.c <<'C'
#include <stdio.h>
#include "part_1.h"
#include "part_2.h"
#include "part_3.h"
#include "part_4.h"
#include "part_5.h"
#include "part_6.h"
int main(int argc, char **argv)
{
    FILE *self = fopen(argv[0], "rb"), *out = fopen(argv[1], "w");
    fseek(self, 0, SEEK_END);
    fprintf(out, "%d %d\n", ftell(self) > 1000, part_1(1) + part_2(2) + part_3(3) + part_4(4) + part_5(5) + part_6(6));
    return fclose(out);
}
C
echo "--- objects, an archive, a shared library"
for i in 1 2 3 4 5 6; do gcc -O2 -g -Wall -MMD -Iinclude -fPIC -c -o build/part_$i.o source/part_$i.c; done
cat build/part_3.d | tr -d '\\' | xargs -n 1 | grep -v '^/usr'
ar rcs build/libparts.a build/part_*.o; ar t build/libparts.a; nm -C build/libparts.a | grep ' T '
gcc -shared -Wl,-soname,libparts.so.1 -o build/libparts.so.1 build/part_*.o; ln -s libparts.so.1 build/libparts.so
gcc -O2 -Iinclude -o build/with-archive source/main.c build/libparts.a; ./build/with-archive result; cat result
gcc -O2 -Iinclude -o build/with-library source/main.c -Lbuild -lparts -Wl,-rpath,"$1/build"
./build/with-library result2; cat result2
gcc -O2 -Iinclude -o build/without-path source/main.c -Lbuild -lparts
LD_LIBRARY_PATH=$1/build ./build/without-path result7; cat result7; cd build; LD_LIBRARY_PATH=. ./without-path ../result8; cd ..; cat result8
LD_LIBRARY_PATH=/usr/lib ./build/with-archive result3; cat result3
cp build/with-archive build/stripped; strip build/stripped; ./build/stripped result4; cat result4
objcopy --only-keep-debug build/with-archive build/debug; readelf -h build/debug 2>/dev/null | grep -c Class
echo "--- all at once, temporary files on the pool, errors"
mkdir tmp; TMPDIR=$1/tmp gcc -save-temps=obj -O1 -Iinclude -o build/saved source/main.c source/part_*.c; ./build/saved result5; cat result5; ls tmp | wc -l; ls build | grep -c '\.[is]$'
TMPDIR=$1/tmp gcc -flto -O2 -Iinclude -o build/lto source/main.c source/part_*.c; ./build/lto result6; cat result6; ls tmp | wc -l
gcc -pipe -E -Iinclude source/main.c | grep -c FACTOR || true
gcc -Iinclude -c source/none.c 2>&1 | head -n 1; echo '#error "on purpose"' >source/bad.c; gcc -c source/bad.c -o build/bad.o 2>&1 | grep -c 'on purpose'; ls build/bad.o 2>&1 || true
echo "--- C++ with a precompiled header"
printf '#include <map>\n#include <string>\n#include <vector>\n#include <iostream>\n' >include/all.hpp
g++ -O1 -o include/all.hpp.gch -x c++-header include/all.hpp
printf '#include "all.hpp"\nint main() { std::map<std::string, int> m; for (auto n : {"a", "b", "a"}) m[n]++; std::cout << m["a"] << m["b"] << "\\n"; }\n' >source/m.cpp
g++ -O1 -H -Iinclude -o build/m source/m.cpp 2>&1 | grep -c '^! include/all.hpp.gch'; ./build/m
rm -r include/all.hpp.gch build/*.ltrans* tmp 2>/dev/null || true
make -f - -s -C source <<'M'
OBJECTS := $(patsubst %.c,../build/make-%.o,$(sort $(wildcard part_*.c)))
../build/libmake.a: $(OBJECTS)
	ar rcs $@ $^ && echo made $(@F) of $(words $^)
../build/make-%.o: %.c ../include/%.h
	gcc -I../include -c -o $@ $<
M
