// What Java programs do with files: java.io, java.nio with channels and maps, attributes, walks,
// archives, threads, a child process. The first argument is the directory.

import java.io.*;
import java.nio.ByteBuffer;
import java.nio.MappedByteBuffer;
import java.nio.channels.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.nio.file.attribute.*;
import java.security.MessageDigest;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;
import java.util.zip.*;

public class Files {
    static Path directory;

    static Path at(String name) {
        return directory.resolve(name);
    }

    static void show(Object... values) {
        System.out.println(Arrays.stream(values).map(String::valueOf).collect(Collectors.joining(" ")));
    }

    interface Action {
        void run() throws Exception;
    }

    static void refused(Action action) {
        try {
            action.run();
            show("no error");
        } catch (Exception e) {
            show(e.getClass().getSimpleName());
        }
    }

    static String sum(byte[] data) throws Exception {
        return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(data)).substring(0, 16);
    }

    static void streams() throws Exception {
        show("--- java.io");
        try (PrintWriter w = new PrintWriter(new FileWriter(at("a").toFile()))) {
            for (int i = 0; i < 1000; i++) w.println("line " + i);
        }
        try (FileOutputStream out = new FileOutputStream(at("a").toFile(), true)) {
            out.write("more\n".getBytes());
            out.getFD().sync();
        }
        try (BufferedReader r = new BufferedReader(new FileReader(at("a").toFile()))) {
            show(r.lines().count());
        }
        try (RandomAccessFile f = new RandomAccessFile(at("b").toFile(), "rw")) {
            f.writeInt(42);
            f.writeUTF("text");
            f.seek(100);
            f.writeDouble(1.5);
            f.seek(0);
            show(f.readInt(), f.readUTF(), f.length(), f.getFilePointer());
            f.setLength(50);
            show(f.length());
        }
        try (RandomAccessFile f = new RandomAccessFile(at("b").toFile(), "rwd")) {
            f.write(new byte[10000]);
        }
        File a = at("a").toFile(), d = at("d").toFile();
        show(a.exists(), a.length(), a.isFile(), a.canWrite(), a.canExecute(), d.mkdir(), d.mkdir(), at("d/e/f").toFile().mkdirs(), d.isDirectory(), d.list().length);
        show(a.renameTo(at("a2").toFile()), at("a2").toFile().renameTo(a), a.setLastModified(5000), a.lastModified(), a.setReadOnly(), a.setWritable(true), a.createNewFile(), at("n").toFile().createNewFile(), at("n").toFile().delete());
        show(a.getCanonicalPath().equals(a.getPath()), d.getTotalSpace() > 0, at("d/e").toFile().delete(), File.createTempFile("tmp", ".x", d).delete());
        refused(() -> new FileInputStream(at("none").toFile()));
        refused(() -> new FileOutputStream(d));
        try (ObjectOutputStream out = new ObjectOutputStream(new BufferedOutputStream(new FileOutputStream(at("object").toFile())))) {
            out.writeObject(new TreeMap<>(Map.of("one", 1, "two", 2)));
        }
        try (ObjectInputStream in = new ObjectInputStream(new FileInputStream(at("object").toFile()))) {
            show(in.readObject());
        }
    }

    static void paths() throws Exception {
        show("--- java.nio.file");
        java.nio.file.Files.writeString(at("s"), "string\nof lines\n");
        java.nio.file.Files.writeString(at("s"), "appended\n", StandardOpenOption.APPEND);
        show(java.nio.file.Files.readAllLines(at("s")), java.nio.file.Files.size(at("s")), java.nio.file.Files.mismatch(at("s"), at("a")));
        java.nio.file.Files.copy(at("a"), at("copied"), StandardCopyOption.COPY_ATTRIBUTES);
        show(java.nio.file.Files.mismatch(at("a"), at("copied")), java.nio.file.Files.getLastModifiedTime(at("copied")));
        java.nio.file.Files.move(at("copied"), at("d/moved"), StandardCopyOption.ATOMIC_MOVE);
        java.nio.file.Files.move(at("d/moved"), at("s2"), StandardCopyOption.REPLACE_EXISTING);
        java.nio.file.Files.createLink(at("hard"), at("s"));
        java.nio.file.Files.createSymbolicLink(at("soft"), Path.of("s"));
        show(java.nio.file.Files.readSymbolicLink(at("soft")), java.nio.file.Files.isSameFile(at("soft"), at("hard")), java.nio.file.Files.getAttribute(at("s"), "unix:nlink"), at("soft").toRealPath().equals(at("s")), java.nio.file.Files.isSymbolicLink(at("soft")));
        java.nio.file.Files.setPosixFilePermissions(at("s"), PosixFilePermissions.fromString("rw-r-----"));
        java.nio.file.Files.setLastModifiedTime(at("s"), FileTime.from(1234567, TimeUnit.MICROSECONDS));
        java.nio.file.Files.getFileAttributeView(at("s"), BasicFileAttributeView.class).setTimes(FileTime.fromMillis(7), FileTime.fromMillis(8), null);
        PosixFileAttributes p = java.nio.file.Files.readAttributes(at("s"), PosixFileAttributes.class);
        show(PosixFilePermissions.toString(p.permissions()), p.lastModifiedTime(), p.lastAccessTime(), p.size(), p.isRegularFile(), java.nio.file.Files.getOwner(at("s")).equals(p.owner()), java.nio.file.Files.isWritable(at("s")), java.nio.file.Files.notExists(at("none")));
        java.nio.file.Files.createDirectory(at("masked"), PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
        show(PosixFilePermissions.toString(java.nio.file.Files.getPosixFilePermissions(at("masked"))));
        refused(() -> java.nio.file.Files.createFile(at("s")));
        refused(() -> java.nio.file.Files.delete(at("none")));
        refused(() -> java.nio.file.Files.readString(at("none")));
        refused(() -> java.nio.file.Files.createDirectory(at("d")));
        refused(() -> java.nio.file.Files.newDirectoryStream(at("s")));
        refused(() -> java.nio.file.Files.readSymbolicLink(at("s")));
        refused(() -> java.nio.file.Files.move(at("s"), at("s2")));
        for (int i = 0; i < 60; i++) {
            java.nio.file.Files.createDirectories(at("tree/" + i % 4 + "/" + i % 3));
            java.nio.file.Files.write(at("tree/" + i % 4 + "/" + i % 3 + "/file-" + i), new byte[i * 100]);
        }
        refused(() -> java.nio.file.Files.delete(at("tree")));
        try (Stream<Path> walk = java.nio.file.Files.walk(at("tree"))) {
            show(walk.filter(java.nio.file.Files::isRegularFile).count());
        }
        try (DirectoryStream<Path> entries = java.nio.file.Files.newDirectoryStream(at("tree"), "[0-1]")) {
            show(StreamSupport.stream(entries.spliterator(), false).map(e -> e.getFileName().toString()).sorted().toList());
        }
        try (DirectoryStream<Path> entries = java.nio.file.Files.newDirectoryStream(at("tree"))) {
            SecureDirectoryStream<Path> secure = (SecureDirectoryStream<Path>) entries;
            try (SecureDirectoryStream<Path> inner = secure.newDirectoryStream(Path.of("0"))) {
                for (Path name : inner) if (name.endsWith("0")) try (SecureDirectoryStream<Path> third = inner.newDirectoryStream(Path.of("0"))) {
                    third.deleteFile(Path.of("file-0"));
                }
            }
        }
        java.nio.file.Files.walkFileTree(at("tree/1"), new SimpleFileVisitor<>() {
            public FileVisitResult visitFile(Path file, BasicFileAttributes attributes) throws IOException {
                java.nio.file.Files.delete(file);
                return FileVisitResult.CONTINUE;
            }

            public FileVisitResult postVisitDirectory(Path directory, IOException e) throws IOException {
                java.nio.file.Files.delete(directory);
                return FileVisitResult.CONTINUE;
            }
        });
        show(java.nio.file.Files.exists(at("tree/1")), java.nio.file.Files.exists(at("tree/0/0/file-0")), java.nio.file.Files.getFileStore(directory).getTotalSpace() > 0);
    }

    static void channels() throws Exception {
        show("--- channels");
        Set<OpenOption> options = Set.of(StandardOpenOption.CREATE, StandardOpenOption.READ, StandardOpenOption.WRITE);
        try (FileChannel c = FileChannel.open(at("channel"), options)) {
            for (int i = 0; i < 300; i++) c.write(ByteBuffer.wrap(("record " + i + "\n").getBytes()), i * 20L);
            show(c.size(), c.position(), c.position(40).read(ByteBuffer.allocate(20)), c.position());
            show(c.write(new ByteBuffer[] {ByteBuffer.wrap("xx".getBytes()), ByteBuffer.wrap("yyy".getBytes())}), c.read(new ByteBuffer[] {ByteBuffer.allocate(3), ByteBuffer.allocate(4)}));
            c.force(true);
            try (FileLock lock = c.lock(0, 100, false)) {
                show(lock.isValid(), lock.isShared());
            }
            try (FileLock lock = c.tryLock()) {
                show(lock != null);
            }
            MappedByteBuffer read = c.map(FileChannel.MapMode.READ_ONLY, 0, c.size());
            byte[] all = new byte[(int) c.size()];
            read.get(all);
            show(sum(all), sum(java.nio.file.Files.readAllBytes(at("channel"))));
            MappedByteBuffer own = c.map(FileChannel.MapMode.PRIVATE, 0, 100);
            own.put(0, (byte) 'P');
            show((char) own.get(0), (char) java.nio.file.Files.readAllBytes(at("channel"))[0]);
            try (FileChannel to = FileChannel.open(at("transferred"), options)) {
                show(c.transferTo(0, 3000, to), to.transferFrom(c.position(0), 3000, 1000), to.size());
            }
            c.truncate(1000);
            show(c.size());
        }
        try (AsynchronousFileChannel c = AsynchronousFileChannel.open(at("asynchronous"), options, null)) {
            List<Future<Integer>> writes = new ArrayList<>();
            for (int i = 0; i < 50; i++) writes.add(c.write(ByteBuffer.wrap(new byte[100]), i * 100L));
            int written = 0;
            for (Future<Integer> write : writes) written += write.get();
            show(written, c.size(), c.read(ByteBuffer.allocate(500), 4800).get());
        }
        refused(() -> FileChannel.open(at("channel"), StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE));
        FileChannel.open(at("on-close"), StandardOpenOption.CREATE, StandardOpenOption.WRITE, StandardOpenOption.DELETE_ON_CLOSE).close();
        show(java.nio.file.Files.exists(at("on-close")));
        try (ZipOutputStream zip = new ZipOutputStream(new FileOutputStream(at("z.zip").toFile()))) {
            for (int i = 0; i < 20; i++) {
                zip.putNextEntry(new ZipEntry("entry-" + i));
                zip.write(new byte[i * 1000]);
            }
        }
        try (ZipFile zip = new ZipFile(at("z.zip").toFile())) {
            show(zip.size(), zip.getEntry("entry-7").getSize(), zip.getInputStream(zip.getEntry("entry-19")).readAllBytes().length);
        }
        try (FileSystem zip = FileSystems.newFileSystem(at("z.zip"))) {
            java.nio.file.Files.writeString(zip.getPath("added"), "added");
        }
        try (ZipFile zip = new ZipFile(at("z.zip").toFile())) {
            show(zip.size());
        }
        java.nio.file.Files.delete(at("z.zip"));
    }

    static void threads() throws Exception {
        show("--- threads and a child");
        java.nio.file.Files.createDirectory(at("threads"));
        ExecutorService pool = Executors.newFixedThreadPool(4);
        List<Future<?>> all = new ArrayList<>();
        for (int n = 0; n < 4; n++) {
            final int number = n;
            all.add(pool.submit(() -> {
                for (int i = 0; i < 200; i++) {
                    Path file = at("threads/" + number + "-" + i);
                    java.nio.file.Files.write(file, new byte[i * 10]);
                    if (i % 2 == 0) java.nio.file.Files.move(file, at("threads/moved-" + number + "-" + i));
                    else if (i % 3 == 0) java.nio.file.Files.delete(file);
                    java.nio.file.Files.writeString(at("log"), number + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
                }
                return null;
            }));
        }
        for (Future<?> one : all) one.get();
        pool.shutdown();
        show(at("threads").toFile().list().length, java.nio.file.Files.readAllLines(at("log")).size());
        java.nio.file.Files.write(at("log"), java.nio.file.Files.readAllLines(at("log")).stream().sorted().toList());
        Process child = new ProcessBuilder("sh", "-c", "pwd; cat; echo and an error >&2; exit 3").directory(at("d").toFile()).redirectInput(at("s").toFile()).redirectOutput(at("out").toFile()).redirectError(at("errors").toFile()).start();
        show(child.waitFor(), java.nio.file.Files.readAllLines(at("out")).size(), java.nio.file.Files.readString(at("errors")).trim());
        show("done", directory.toFile().list().length);
    }

    public static void main(String[] arguments) throws Exception {
        directory = Path.of(arguments[0]);
        streams();
        paths();
        channels();
        threads();
    }
}
