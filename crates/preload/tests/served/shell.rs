//! Real programs, started by real shells, compared with the plain host.

use super::support::{DISPATCHES, Place, compare_script, library};
use std::process::Command;

#[test]
fn copy_walk_and_compare() {
    for shell in ["/bin/sh", "/bin/bash"] {
        let printed = compare_script(
            shell,
            r#"
            cp -a /usr/include/linux $D/ && ls -R $D | wc -l
            find $D -type f | wc -l; grep -r include $D/linux | wc -l
            tar cf t.tar -C $D linux; mkdir ex; tar xf t.tar -C ex; diff -r linux ex/linux && echo same
            (cd ex && mv linux lx && ln -s lx sl && readlink sl && ls sl/ | wc -l)
            ln t.tar hard; stat -c '%h %s' hard; rm -rf linux; ls
            du -s --apparent-size ex >/dev/null; echo $?; chmod 640 hard; stat -c '%a %F' hard ex
            touch -d 2020-01-01 hard; stat -c %Y hard; truncate -s 100 hard; stat -c %s t.tar
            "#,
        );
        assert!(printed.contains("same"), "{printed}");
    }
}

#[test]
fn redirections() {
    for shell in ["/bin/sh", "/bin/bash"] {
        compare_script(
            shell,
            r#"
            exec 5>$D/out; echo one >&5; (echo two >&5); sh -c 'echo three >&5'; exec 5>&-; cat out
            while read l; do echo "got $l"; done < $D/out
            cat < out | tr a-z A-Z; { cat; } <<X
here
X
            echo a >> out; cat /dev/stdin < out; sed -i s/one/ONE/ out; cat out
            ( exec 3<out 4>new; cat <&3 >&4 ); cat new; : > new; [ -s new ] || echo empty
            exec 7>z; echo x >&7; readlink /proc/self/fd/7 | sed "s,$D,,"; exec 7>&-; env -i /bin/cat $D/z
            set -C; : > out; echo $?; set +C
            yes | head -3 > y; wc -l < y; ls nope 2> err; wc -l < err
            "#,
        );
    }
}

#[test]
fn programs_stored_on_the_pool() {
    compare_script(
        "/bin/bash",
        r#"
        cp /bin/echo here; ./here ran; $D/here ran too; mkdir bin; mv here bin/; PATH=$D/bin:$PATH here by name
        printf '#!/bin/sh\necho script "$@"\n' > s; chmod +x s; ./s a b; cp s bin/t; PATH=$D/bin:$PATH t c
        printf '#!%s/bin/here first\n' $D > u; chmod +x u; ./u | sed "s,$D,,"
        ./nope; echo $?; chmod -x s; ./s; echo $?
        find . -name s -exec sh -c 'echo found $0' {} \;
        "#,
    );
}

#[test]
fn compiler_and_sqlite() {
    compare_script(
        "/bin/sh",
        r#"
        echo '#define B 42' > b.h; printf '#include <stdio.h>\n#include "b.h"\nint main(){printf("%%d\\n",B);}' > a.c
        gcc -o a a.c && ./a; rm -rf a a.c
        sqlite3 x.db "create table t(a); with recursive c(x) as (select 1 union all select x+1 from c where x<10000) insert into t select x from c; select count(*),sum(a) from t;"
        sqlite3 x.db "pragma integrity_check; delete from t where a%2; vacuum; select count(*) from t"
        ls
        "#,
    );
}

/// What sqlite's write-ahead log keeps in shared memory, and databases read through a map.
#[test]
fn sqlite_with_shared_memory() {
    let printed = compare_script(
        "/bin/sh",
        r#"
        sqlite3 w.db "pragma journal_mode=wal; create table t(a integer primary key, b text);"
        sqlite3 w.db "with recursive c(x) as (select 1 union all select x+1 from c where x<20000) insert into t select x, 'row ' || x from c; select count(*), sum(a) from t; pragma wal_checkpoint(truncate);"
        sqlite3 w.db <<'Q'
pragma mmap_size=67108864;
begin; update t set b = b || b where a % 3 = 0; select sum(length(b)) from t; rollback;
delete from t where a > 10000; select count(*), max(b) from t;
pragma wal_checkpoint(passive); vacuum; pragma integrity_check;
.backup copy.db
Q
        sqlite3 copy.db "pragma mmap_size=1000000; select count(*), sum(length(b)) from t; pragma integrity_check"
        sqlite3 w.db "pragma journal_mode=delete; select count(*) from t"; ls
        "#,
    );
    assert!(printed.contains("10000|row 9999"), "{printed}");
    assert!(printed.contains("ok"), "{printed}");
}

#[test]
fn python_maps() {
    let printed = compare_script(
        "/bin/sh",
        r#"
        cat > m.py <<'P'
import mmap, os, sys
with open("data", "w+b") as f:
    f.write(b"hello world\n" * 1000)
    f.flush()
    m = mmap.mmap(f.fileno(), 0)
    m[0:5] = b"HELLO"
    print(m.find(b"world"), m.rfind(b"hello"), m.size(), os.pread(f.fileno(), 5, 0))
    m.resize(50000)
    m[49990:50000] = b"0123456789"
    m.flush()
    print(os.fstat(f.fileno()).st_size, os.pread(f.fileno(), 10, 49990))
    m.move(100, 0, 11)
    os.pwrite(f.fileno(), b"written", 200)
    print(m[100:111], m[200:207])
    pid = os.fork()
    if pid == 0:
        m[300:305] = b"child"
        os._exit(0)
    os.waitpid(pid, 0)
    print(m[300:305], os.pread(f.fileno(), 5, 300))
    m.close()
with open("data", "rb") as f:
    r = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
    print(len(r), hash(bytes(r)) == hash(open("data", "rb").read()))
    try:
        r[0] = 1
    except TypeError as e:
        print(e)
    c = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY)
    c[0:3] = b"cow"
    print(c[0:5], r[0:5])
try:
    mmap.mmap(os.open("data", os.O_RDONLY), 10, mmap.MAP_SHARED, mmap.PROT_WRITE)
except PermissionError as e:
    print(e)
P
        python3 m.py; cmp -n 5 data /dev/null; head -c 12 data
        "#,
    );
    assert!(printed.contains("b'child' b'child'"), "{printed}");
}

#[test]
fn libraries_stored_on_the_pool() {
    compare_script(
        "/bin/sh",
        r#"
        echo 'int f(void){return 42;}' > l.c; gcc -shared -fPIC -o l.so l.c
        cat > m.c <<'C'
#include <dlfcn.h>
#include <stdio.h>
int main(int c, char **v) { void *l = dlopen(v[1], RTLD_NOW); if (!l) { puts("no"); return 1; } printf("%d\n", ((int (*)(void))dlsym(l, "f"))()); return !dlopen("libm.so.6", RTLD_NOW); }
C
        gcc -o m m.c -ldl; ./m $D/l.so; ./m ./l.so; ./m ./none.so; echo $?
        "#,
    );
}

/// What the loader looks for by the paths in programs and in the environment.
#[test]
fn libraries_found_on_the_pool() {
    let printed = compare_script(
        "/bin/sh",
        r#"
        mkdir lib other
        echo 'int g(void){return 1;}' > g.c; gcc -shared -fPIC -Wl,-soname,libg.so.1 -o lib/libg.so.1 g.c
        echo 'int g(void); int f(void){return 41 + g();}' > f.c
        gcc -shared -fPIC -Wl,-soname,libf.so.1 -Wl,-rpath,'$ORIGIN' -o lib/libf.so.1 f.c lib/libg.so.1; ln -s libf.so.1 lib/libf.so
        printf '#include <stdio.h>\nint f(void); int main(){printf("%%d\\n",f());}' > m.c
        gcc -o absolute m.c -Llib -lf -Wl,-rpath,$D/lib -Wl,-rpath-link,lib && ./absolute
        gcc -o origin m.c -Llib -lf -Wl,-rpath,'$ORIGIN/lib' -Wl,-rpath-link,lib && ./origin; (cd other; ../origin; $D/origin)
        gcc -o none m.c -Llib -lf -Wl,-rpath-link,lib; ./none 2>/dev/null; echo "status $?"
        LD_LIBRARY_PATH=$D/lib ./none; LD_LIBRARY_PATH=lib ./none; LD_LIBRARY_PATH=/nowhere:$D/other:lib sh -c './none; ./none'
        T=$(mktemp -d /tmp/arck-test-XXXXXX); cp none $T/; LD_LIBRARY_PATH=$D/lib $T/none; rm -r $T
        LD_LIBRARY_PATH=$D/lib python3 -c 'import os; print([f for f in os.listdir("/proc/self/fd") if int(f) > 20])'
        LD_LIBRARY_PATH=$D/lib /bin/echo other programs are not touched
        "#,
    );
    assert_eq!(printed.matches("42").count(), 9, "{printed}");
}

#[test]
fn host_paths_are_untouched() {
    let place = Place::new();
    let output = place.served(
        "",
        Command::new("/bin/sh")
            .arg("-c")
            .arg("cat /proc/self/comm; ls -d /usr; cat /arck"),
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), "cat\n/usr\n");
}

/// The pool's sockets, and others, which are not touched.
#[test]
fn sockets_of_unix() {
    let place = Place::new();
    let script = r#"
import os, socket
def attempt(what, address):
    try:
        getattr(socket.socket(socket.AF_UNIX), what)(address)
        print(what, "works")
    except OSError as error:
        print(what, os.strerror(error.errno))
open("/arck/file", "w")
attempt("bind", "/arck/s")
attempt("bind", "/arck/file")
attempt("connect", "/arck/file")
attempt("connect", "/arck/none")
attempt("bind", chr(0) + "arck-test-%d" % os.getpid())
os.chdir("/arck")
attempt("bind", "relative")
os.chdir(os.environ["BESIDE"])
attempt("bind", "beside")
print(os.path.exists("beside"), sorted(os.listdir("/arck")))
for name in os.listdir("/arck"):
    os.unlink("/arck/" + name)
"#;
    for dispatch in DISPATCHES {
        let beside = tempfile::tempdir().expect("a directory");
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", script]).env("BESIDE", beside.path());
        let output = place.served(dispatch, &mut command);
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "bind works\nbind Address already in use\n\
             connect Connection refused\nconnect No such file or directory\nbind works\n\
             bind works\nbind works\nTrue ['file', 'relative', 's']\n",
            "{output:?}"
        );
    }
}

/// Without dispatch, what libc does itself is not seen, but symbols are.
#[test]
fn without_dispatch() {
    let place = Place::new();
    let script = "cp /etc/passwd /arck/p && cat /arck/p | cmp - /etc/passwd && echo fine";
    let output = place.served("none", Command::new("/bin/sh").arg("-c").arg(script));
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "fine\n",
        "{output:?}"
    );
    assert!(
        place
            .report()
            .iter()
            .all(|line| line["interception"]["dispatch"] == "none")
    );
}

/// A pool that cannot be reached: one line, EIO, and the rest of the system works.
#[test]
fn unreachable_pool() {
    let place = Place::new();
    let script = "cat /arck/x /arck/y; echo alive";
    let output = Command::new("/bin/sh")
        .args(["-c", script])
        .env("LD_PRELOAD", library())
        .env("ARCK_POOL", "/nonexistent")
        .env("ARCK_MOUNT", "/arck")
        .env("ARCK_REPORT", &place.report)
        .output()
        .expect("the command runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "alive\n");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(errors.matches("arck: ").count(), 1, "{errors}");
    assert_eq!(errors.matches("Input/output error").count(), 2, "{errors}");
}

/// Without settings the library does nothing.
#[test]
fn no_settings() {
    // Whether the host has the directory at this moment or not: another test's `arck run` may hold it.
    let output = Command::new("/bin/ls")
        .arg("/arck/not-there")
        .env("LD_PRELOAD", library())
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("No such file"));
}

/// Programs that open a path component by component, from the root on.
#[test]
fn directories_above_the_pool() {
    let printed = compare_script(
        "/bin/bash",
        r#"
        mkdir -p a/b; echo text > a/b/f; cat > walk.py <<'P'
import os, sys
directory = os.open("/", os.O_PATH | os.O_DIRECTORY)
for name in sys.argv[1].strip("/").split("/") + ["a", "b"]:
    mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    below = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
    os.close(directory)
    directory = below
print(oct(mode), os.open("f", os.O_RDONLY, dir_fd=directory) > 2, os.listdir(os.open(".", os.O_RDONLY, dir_fd=directory)))
root = os.open("/", os.O_RDONLY)
relative = sys.argv[1].lstrip("/")
for path in [relative + "/a/b/f", relative + "/a//b/../b/f", relative + "/a/b/", relative + "/missing", relative + "x"]:
    try:
        print(os.stat(path, dir_fd=root).st_size if path.endswith("f") else os.stat(path, dir_fd=root).st_nlink)
    except OSError as error:
        print(error.strerror)
os.mkdir(relative + "/made", dir_fd=root)
os.rename(relative + "/a", relative + "/made/moved", src_dir_fd=root, dst_dir_fd=root)
print(sorted(os.listdir(".")), os.stat("usr", dir_fd=root).st_nlink > 2)
P
        python3 walk.py $D; cat made/moved/b/f
        "#,
    );
    assert!(printed.contains("made"), "{printed}");
}

/// A program that is not reached must not work in some directory of the host because its parent
/// was in one before it went to the pool.
#[test]
fn the_kernels_directory_is_nowhere_while_the_programs_is_on_the_pool() {
    let place = Place::new();
    for dispatch in DISPATCHES {
        let script = "cd /usr && cd /arck && readlink /proc/$$/cwd; mkdir -p d && cd d; \
                      readlink /proc/$$/cwd; cd /usr; readlink /proc/$$/cwd; \
                      ls -a /dev/shm | grep -c nowhere-$$; :";
        let output = place.served(dispatch, Command::new("/bin/sh").args(["-c", script]));
        let printed = String::from_utf8_lossy(&output.stdout);
        let lines: Vec<&str> = printed.lines().collect();
        let [on_pool, below, back, left] = lines[..] else {
            panic!("{output:?}");
        };
        assert!(on_pool.ends_with("(deleted)"), "{printed}");
        assert_eq!(below, on_pool, "made once: {printed}");
        assert_eq!((back, left), ("/usr", "0"), "{printed}");
    }
}
