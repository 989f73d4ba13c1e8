# program: go build
# needs: go=golang-go gcc=build-essential cksum=coreutils
# version: go version | sed 's/.*go\([0-9][0-9.]*\) .*/\1/'
# compares: a module of 40 packages, one of them with C, built, vetted, tested, installed, built again after a change; the built programs, which are static, work on files; the cache is on the pool
# volatile: cache/
# forms: run mount
# The go command, its compiler and its linker are static, as are the programs that it makes.
cd "$1"
export GOPATH=$1/path GOCACHE=$1/cache GOTMPDIR=$1/temporary GOENV=off GOFLAGS=-trimpath GOPROXY=off GOTOOLCHAIN=local GOTELEMETRY=off CGO_ENABLED=0
mkdir temporary module
cd module
printf 'module example.org/module\n\ngo 1.19\n' >go.mod
for i in $(seq 40); do
    mkdir "part$i"
    printf 'package part%s\n\n// Value is one of many.\nfunc Value() int { return %s }\n' "$i" "$i" >"part$i/part.go"
done
printf 'package part7\n\nimport "testing"\n\nfunc TestValue(t *testing.T) {\n\tif Value() != 7 {\n\t\tt.Fatal(Value())\n\t}\n}\n' >part7/part_test.go
mkdir native
cat >native/native.go <<'END'
package native

/*
#include <stdlib.h>
static int twice(int n) { return abs(n) * 2; }
*/
import "C"

func Twice(n int) int { return int(C.twice(C.int(n))) }
END
{
    printf 'package main\n\nimport (\n\t"bufio"\n\t"fmt"\n\t"os"\n\t"path/filepath"\n\t"sync"\n'
    for i in $(seq 40); do printf '\t"example.org/module/part%s"\n' "$i"; done
    printf ')\n\nfunc sum() (all int) {\n'
    for i in $(seq 40); do printf '\tall += part%s.Value()\n' "$i"; done
    printf '\treturn\n}\n'
    cat <<'END'

func main() {
	directory := os.Args[1]
	if err := os.MkdirAll(directory, 0o755); err != nil {
		panic(err)
	}
	var wait sync.WaitGroup
	for n := 0; n < 8; n++ {
		wait.Add(1)
		go func(n int) {
			defer wait.Done()
			file, err := os.Create(filepath.Join(directory, fmt.Sprint("file", n)))
			if err != nil {
				panic(err)
			}
			writer := bufio.NewWriter(file)
			for line := 0; line < 1000; line++ {
				fmt.Fprintln(writer, n, line)
			}
			writer.Flush()
			if err := file.Sync(); err != nil {
				panic(err)
			}
			file.Close()
			if err := os.Rename(file.Name(), file.Name()+".done"); err != nil {
				panic(err)
			}
		}(n)
	}
	wait.Wait()
	entries, err := os.ReadDir(directory)
	if err != nil {
		panic(err)
	}
	fmt.Println(sum(), len(entries), entries[0].Name())
}
END
} >main.go
go build -o ../out/ .
../out/module ../made
cksum ../made/*
go vet .
go test ./part7 | sed 's/\t[0-9.]*s$//'
go test ./part7 | grep -o '(cached)'
mkdir with-c
printf 'package main\n\nimport "example.org/module/native"\n\nfunc main() { println(native.Twice(-21)) }\n' >with-c/main.go
CGO_ENABLED=1 go build -o ../out/with-c ./with-c
../out/with-c
# Two at once share the cache.
sed -i 's/return 7/return 107/' part7/part.go
go build -o ../out/first . & go build -o ../out/second .; wait
../out/first ../made
cmp ../out/first ../out/second
if go test ./part7 >"$SCRATCH/failed"; then echo "a wrong value passes"; fi
grep -o 'part_test.go:7: 107' "$SCRATCH/failed"
go install .; "$GOPATH/bin/module" ../made
go clean -cache; ls -A ../temporary; ls ../cache
rm ../out/with-c
