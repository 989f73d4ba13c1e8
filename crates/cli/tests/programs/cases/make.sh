# program: make -j2, gcc (a generated C project of 121 sources with a configure script)
# needs: make=build-essential gcc=build-essential ar=binutils
# version: echo "$(make --version | head -n 1 | awk '{ print $NF }'), gcc $(gcc -dumpfullversion)"
# compares: every object, library and program, the output of the built programs, what a second make does after changes
cd "$1"
mkdir project project/src project/include project/tests; cd project
# A configure script with the questions that autoconf's ask, and what it is asked to fill in.
cat >configure <<'END'
#!/bin/sh
# Asks the compiler, in files conftest.*, and writes config.h, config.status and Makefile.
set -eu
exec 5>config.log 6>&1
: >confdefs.h
try() { name=$1; shift; printf 'checking %s... ' "$name" >&6; if "$@" >&5 2>&1; then echo yes >&6; return 0; else cat conftest.c >&5; echo no >&6; return 1; fi; }
compiles() { cat confdefs.h - >conftest.c; gcc -c -o conftest.o conftest.c; }
links() { cat confdefs.h - >conftest.c; gcc -o conftest conftest.c && ./conftest; }
for header in stdio stdlib string unistd fcntl sys/mman sys/stat none/such; do
    macro=HAVE_$(echo "$header" | tr a-z/ A-Z_)_H
    if echo "#include <$header.h>" | try "for $header.h" compiles; then echo "#define $macro 1" >>confdefs.h; fi
done
for function in memcpy openat mmap no_such_function strlcpy_none; do
    if printf 'char %s(void); int main(void) { return %s != %s; }\n' $function $function $function | try "for $function" links; then echo "#define HAVE_$(echo $function | tr a-z A-Z) 1" >>confdefs.h; fi
done
for type in int long 'void *' short; do
    printf '#include <stdio.h>\nint main(void) { FILE *f = fopen("conftest.val", "w"); fprintf(f, "%%zu", sizeof(%s)); return fclose(f); }\n' "$type" | try "size of $type" links
    echo "#define SIZEOF_$(echo "$type" | tr 'a-z *' A-Z_P) $(cat conftest.val)" >>confdefs.h; rm -f conftest*
done
cat >config.status <<EOF
#!/bin/sh
sed 's|@CC@|gcc|; s|@CFLAGS@|-O1 -g|; s|@srcdir@|.|' Makefile.in >Makefile.tmp && mv -f Makefile.tmp Makefile
if cmp -s confdefs.h config.h; then echo config.h is unchanged; else cp confdefs.h config.h.tmp && mv config.h.tmp config.h; echo config.h made; fi
EOF
chmod +x config.status; ./config.status; rm -f conftest*
END
chmod +x configure
cat >Makefile.in <<'END'
CC = @CC@
CFLAGS = @CFLAGS@ -I@srcdir@/include -I.
SOURCES := $(sort $(wildcard src/part_*.c))
OBJECTS := $(SOURCES:src/%.c=obj/%.o)
PROGRAMS := bin/all bin/shared $(patsubst tests/%.c,bin/%,$(wildcard tests/*.c))
all: $(PROGRAMS)
obj bin lib:
	mkdir -p $@
obj/%.o: src/%.c | obj
	$(CC) $(CFLAGS) -fPIC -MMD -MP -c -o $@ $<
lib/libparts.a: $(OBJECTS) | lib
	rm -f $@ && ar rcs $@ $(OBJECTS)
lib/libparts.so: $(OBJECTS) | lib
	$(CC) -shared -Wl,-soname,$(@F) -o $@ $(OBJECTS)
bin/all: src/main.c lib/libparts.a | bin
	$(CC) $(CFLAGS) -o $@ src/main.c lib/libparts.a
bin/shared: src/main.c lib/libparts.so | bin
	$(CC) $(CFLAGS) -o $@ src/main.c -Llib -lparts '-Wl,-rpath,$$ORIGIN/../lib'
bin/test_%: tests/test_%.c lib/libparts.a | bin
	$(CC) $(CFLAGS) -o $@ $< lib/libparts.a
Makefile: Makefile.in config.status
	./config.status
check: all
	@for t in bin/test_*; do $$t >$$t.out || exit 1; done; cat bin/test_*.out | cksum
	$(MAKE) -C tests -f ../sub.mk where
install: all
	install -d $(DESTDIR)/bin && install -m 755 bin/all bin/shared $(DESTDIR)/bin
	install -D -m 755 -t $(DESTDIR)/lib lib/libparts.so
clean:
	rm -rf obj bin lib
.PHONY: all check clean install
-include $(OBJECTS:.o=.d)
END
printf 'where:\n\t@pwd | sed "s,.*/project,project,"; ls *.c | wc -l\n' >sub.mk
for i in $(seq 100); do
    printf '#pragma once\n#include "config.h"\n#include <string.h>\nint part_%d(int);\n' "$i" >include/part_$i.h
    printf '#include "part_%d.h"\n#include <stdio.h>\nstatic int table_%d[64];\nint part_%d(int x)\n{\n    for (int i = 0; i < 64; i++) table_%d[i] = i * %d + x;\n    char text[64]; snprintf(text, sizeof text, "%%d", table_%d[x & 63]);\n    return (int)strlen(text) + table_%d[(x + %d) & 63];\n}\n' "$i" "$i" "$i" "$i" "$i" "$i" "$i" "$i" >src/part_$i.c
done
{ for i in $(seq 100); do echo "#include \"part_$i.h\""; done; echo '#include <stdio.h>'; echo 'int main(void) { long sum = 0;'; for i in $(seq 100); do echo "sum += part_$i($i);"; done; echo 'printf("%ld\n", sum); return 0; }'; } >src/main.c
for i in $(seq 20); do printf '#include "part_%d.h"\n#include <stdio.h>\nint main(void) { for (int i = 0; i < 50; i++) printf("%%d\\n", part_%d(i)); return 0; }\n' "$i" "$i" >tests/test_$i.c; done

./configure; cksum <config.h
make -j2 >made; sort made | cksum; bin/all; bin/shared; make -j2
make -s -j2 check; make -s install DESTDIR="$1/installed"; "$1/installed/bin/all"; "$1/installed/bin/shared"
# After changes only what they concern is made again.
sleep 0.01; touch include/part_7.h; echo '/* changed */' >>src/part_8.c; touch Makefile.in
make -j2 >made; sort made; make -q && echo nothing to do
make -n -B | wc -l; make -s -j2 -k bin/test_1 bin/none 2>/dev/null || echo "status $?"
./config.status; make -s clean; ls; make -s -j2 bin/shared obj/part_1.o; bin/shared; rm made config.log
