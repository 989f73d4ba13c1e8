"""What Python programs do with files. The first argument is the directory."""

import array, contextlib, dbm.dumb, errno, fcntl, filecmp, fileinput, glob, gzip, hashlib, io, json
import linecache, lzma, mmap, multiprocessing, os, pathlib, pickle, random, shelve, shutil, signal
import sqlite3, stat, subprocess, sys, tarfile, tempfile, threading, zipfile

directory = sys.argv[1]
os.chdir(directory)
sys.dont_write_bytecode = False


def show(*values):
    print(*values, flush=True)


@contextlib.contextmanager
def refused():
    try:
        yield
        show("no error")
    except OSError as error:
        show(errno.errorcode[error.errno], error.strerror)


show("--- files")
with open("a", "w") as f:
    f.write("one\ntwo\nthree\n")
    show(f.tell(), f.fileno() > 2, f.isatty())
with open("a", "r+") as f:
    show(f.readlines(), f.seek(0), f.write("ONE"), f.truncate(9))
with open("a", "ab", buffering=0) as f:
    show(f.write(b"tail"), f.tell())
with open("a", "rb") as f:
    buffer = bytearray(100)
    show(f.readinto(buffer), f.peek(1), f.seek(-4, io.SEEK_END), f.read())
with refused():
    open("none")
with refused():
    open("a", "x")
with refused():
    os.open(".", os.O_WRONLY)
with open("u", "w", encoding="utf-16", newline="\r\n") as f:
    f.write("€uro\nline\n")
show(os.stat("u").st_size, pathlib.Path("u").read_text(encoding="utf-16").split())
fd = os.open("raw", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
show(os.write(fd, bytes(range(256)) * 64), os.lseek(fd, 100, os.SEEK_SET), os.read(fd, 4))
show(os.pread(fd, 4, 1000), os.pwrite(fd, b"XY", 20000), os.fstat(fd).st_size)
show(os.readv(fd, [bytearray(10), bytearray(20)]), os.writev(fd, [b"ab", b"cde"]))
show(os.preadv(fd, [bytearray(10)], 5), os.pwritev(fd, [b"z"], 30000), os.lseek(fd, 0, os.SEEK_END))
os.posix_fallocate(fd, 0, 40000), os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
os.ftruncate(fd, 35000), os.fsync(fd), os.fdatasync(fd), os.fchmod(fd, 0o600), os.sync()
show(os.fstat(fd).st_size, oct(os.fstat(fd).st_mode), os.get_inheritable(fd), os.get_blocking(fd))
again = os.dup(fd)
show(os.lseek(again, 7, os.SEEK_SET), os.lseek(fd, 0, os.SEEK_CUR), os.dup2(fd, 50), os.close(50), os.close(again))
show(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR, fcntl.fcntl(fd, fcntl.F_GETFD))
with open("sent", "wb") as out:
    show(os.sendfile(out.fileno(), fd, 0, 5000), os.copy_file_range(fd, out.fileno(), 3000, 0))
show(os.stat("sent").st_size, hashlib.sha256(open("sent", "rb").read()).hexdigest()[:16])
fcntl.flock(fd, fcntl.LOCK_EX), fcntl.flock(fd, fcntl.LOCK_UN)
fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 5), fcntl.lockf(fd, fcntl.LOCK_UN)
os.close(fd)
with refused():
    os.read(fd, 1)
os.close(os.open("holes", os.O_RDWR | os.O_CREAT))
with open("holes", "r+b") as f:
    f.seek(1 << 20), f.write(b"x"), f.flush()
    show(os.lseek(f.fileno(), 0, os.SEEK_DATA) > 0, os.lseek(f.fileno(), 0, os.SEEK_HOLE), os.stat("holes").st_blocks < 100)
private = None
with open("raw", "r+b") as f:
    with mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as m:
        show(len(m), m[:4], m.find(b"XY"))
    with mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY) as m:
        m[0:2] = b"!!"
        show(m[:4])
show(open("raw", "rb").read(4))

show("--- names and attributes")
os.mkdir("d"), os.makedirs("d/e/f"), os.symlink("../a", "d/soft"), os.link("a", "d/hard"), os.mkfifo("d/pipe")
show(os.readlink("d/soft"), os.stat("a").st_nlink, os.path.samefile("a", "d/hard"), os.path.realpath("d/soft") == directory + "/a")
os.utime("a", ns=(1_000_000_001, 2_000_000_002)), os.chmod("a", 0o604)
s = os.stat("d/soft")
show(s.st_mtime_ns, s.st_atime_ns, oct(s.st_mode), os.lstat("d/soft").st_size, os.access("a", os.R_OK | os.W_OK), os.access("none", os.F_OK))
os.utime("d/soft", ns=(5, 6), follow_symlinks=False)
show(os.lstat("d/soft").st_mtime_ns)
os.chown("a", os.getuid(), os.getgid()), os.lchown("d/soft", -1, -1)
show(os.umask(0o077), os.close(os.open("masked", os.O_CREAT, 0o666)), oct(os.stat("masked").st_mode), os.umask(0o022))
os.rename("a", "b"), os.replace("b", "a"), os.truncate("a", 5)
for wrong in (lambda: os.rmdir("d"), lambda: os.unlink("d"), lambda: os.rename("a", "d"), lambda: os.rename("d", "d/e/x"), lambda: os.listdir("a"), lambda: os.stat("a/b"), lambda: os.mkdir("d"), lambda: os.readlink("a"), lambda: os.link("none", "x"), lambda: os.stat("x" * 256), lambda: os.chdir("a")):
    with refused():
        wrong()
at = os.open("d", os.O_RDONLY | os.O_DIRECTORY)
f = os.open("in-d", os.O_CREAT | os.O_RDWR, dir_fd=at)
show(os.stat("in-d", dir_fd=at).st_size, sorted(os.listdir(at)), os.path.exists("d/in-d"))
os.rename("in-d", "moved", src_dir_fd=at, dst_dir_fd=at), os.mkdir("sub", dir_fd=at), os.symlink("x", "s", dir_fd=at), os.rmdir("sub", dir_fd=at), os.unlink("s", dir_fd=at)
os.link("moved", "moved2", src_dir_fd=at, dst_dir_fd=at), os.utime("moved", (1, 2), dir_fd=at), os.chmod("moved", 0o600, dir_fd=at)
show(sorted(e.name + ("/" if e.is_dir() else "@" if e.is_symlink() else "") for e in os.scandir(at)), os.access("moved", os.W_OK, dir_fd=at))
os.fchdir(at)
show(os.getcwd() == directory + "/d", os.path.exists("moved"), os.close(f))
os.chdir("..")
os.close(at)
show(os.getcwd() == directory, os.statvfs(".").f_namemax, os.pathconf(".", "PC_NAME_MAX"))
show(os.listxattr("a"), "scandir", sorted(e.inode() == e.stat(follow_symlinks=False).st_ino for e in os.scandir("d")) == [True] * 6)

show("--- trees")
for i in range(50):
    path = pathlib.Path("tree", f"{i % 5}", f"{i % 3}")
    path.mkdir(parents=True, exist_ok=True)
    (path / f"file-{i}").write_bytes(bytes([i]) * i * 100)
show(sum(len(files) for _, _, files in os.walk("tree")), sum(len(f) for _, _, f, _ in os.fwalk("tree")), len(glob.glob("tree/**/file-1*", recursive=True)))
shutil.copytree("tree", "copy", symlinks=True)
compared = filecmp.dircmp("tree", "copy")
show(compared.left_only, compared.right_only, compared.diff_files, len(compared.common_dirs))
shutil.copy2("raw", "raw2"), shutil.move("raw2", "copy/0"), shutil.copyfile("sent", "sent2")
show(filecmp.cmp("raw", "copy/0/raw2", shallow=False), shutil.disk_usage(".").total > 0, sorted(p.name for p in pathlib.Path("copy/0").rglob("*"))[:4])
shutil.rmtree("copy/1"), os.removedirs("d/e/f")
show(sorted(os.listdir("copy")), os.path.exists("d/e"))
shutil.make_archive("archive", "gztar", "tree")
with tarfile.open("archive.tar.gz") as t:
    show(len(t.getnames()), t.extractall("untarred"))
with zipfile.ZipFile("z.zip", "w", zipfile.ZIP_DEFLATED) as z:
    for path in sorted(pathlib.Path("tree").rglob("file-*")):
        z.write(path)
with zipfile.ZipFile("z.zip") as z:
    show(z.testzip(), len(z.namelist()), z.extractall("unzipped"))
show(sum(1 for p in pathlib.Path("unzipped").rglob("*") if p.is_file()), sum(1 for p in pathlib.Path("untarred").rglob("*") if p.is_file()))
os.unlink("archive.tar.gz"), os.unlink("z.zip")

show("--- modules")
with tempfile.TemporaryFile(dir=".") as f:
    f.write(b"temporary"), f.seek(0)
    show(f.read(), os.fstat(f.fileno()).st_nlink)
with tempfile.NamedTemporaryFile("w+", dir=".", delete=True) as f, tempfile.TemporaryDirectory(dir=".") as t:
    show(os.path.exists(f.name), os.path.isdir(t))
with gzip.open("g.gz", "wb") as f:
    f.write(b"compressed " * 1000)
with lzma.open("l.xz", "wb") as f:
    f.write(b"compressed " * 1000)
show(len(gzip.open("g.gz").read()), len(lzma.open("l.xz").read()))
os.unlink("g.gz")
with open("p", "wb") as f:
    pickle.dump({i: str(i) * 10 for i in range(2000)}, f)
show(len(pickle.load(open("p", "rb"))), json.dump({"k": [1, 2, 3]}, open("j", "w")), json.load(open("j")))
with dbm.dumb.open("dumb", "c") as db:
    for i in range(100):
        db[str(i)] = str(i * i)
show(dbm.dumb.open("dumb")["77"], open("sent", "rb").read(3), linecache.getline("a", 1))
with fileinput.input(["masked", "a"], inplace=True) as lines:
    for line in lines:
        print(line.upper(), end="")
show(open("a").read())
array.array("d", range(1000)).tofile(open("array", "wb"))
values = array.array("d")
values.fromfile(open("array", "rb"), 1000)
show(sum(values))
connection = sqlite3.connect("python.db")
with connection:
    connection.execute("create table t(a integer primary key, b text)")
    connection.executemany("insert into t(b) values (?)", ((str(i) * 3,) for i in range(5000)))
show(connection.execute("select count(*), max(b) from t").fetchone(), connection.execute("pragma integrity_check").fetchone())
connection.close()
os.mkdir("package")
pathlib.Path("package/__init__.py").write_text("from . import inner\nvalue = inner.value + 1\n")
pathlib.Path("package/inner.py").write_text("value = 41\n")
sys.path.insert(0, directory)
import package

show(package.value, package.__file__ == directory + "/package/__init__.py", len(os.listdir("package/__pycache__")))

show("--- threads and processes")


def work(n):
    rng = random.Random(n)
    for i in range(100):
        name = f"threads/{n}-{i}"
        with open(name, "wb") as f:
            f.write(rng.randbytes(rng.randrange(5000)))
        if i % 3 == 0:
            os.rename(name, name + "-renamed")
        elif i % 3 == 1:
            os.unlink(name)
        with open("threads/log", "a") as log:
            log.write(f"{n} {i}\n")


os.mkdir("threads")
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
[t.start() for t in threads], [t.join() for t in threads]
lines = open("threads/log").read().split("\n")
show(len(os.listdir("threads")), len(lines), sorted(lines)[-1])
with open("threads/log", "w") as f:
    f.write("\n".join(sorted(lines)))
kept = open("kept", "a+b", buffering=0)
kept.write(b"parent\n")
child = os.fork()
if child == 0:
    kept.write(b"child\n")
    os.mkdir("by-child")
    os._exit(7)
show(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), kept.write(b"parent again\n"), kept.seek(0), kept.read(), os.path.isdir("by-child"))
show(subprocess.run(["cat", "a"], cwd=directory, capture_output=True, text=True).stdout)
with open("from-child", "w") as f:
    show(subprocess.run(["sh", "-c", "pwd | tail -c 4; cat"], stdin=open("a"), stdout=f, cwd="tree").returncode)
show(open("from-child").read()[3:])
process = multiprocessing.get_context("fork").Process(target=lambda: pathlib.Path("by-process").write_text("x"))
process.start(), process.join()
show(process.exitcode, os.path.getsize("by-process"))
kept.close()
show("done", len(os.listdir(".")))
