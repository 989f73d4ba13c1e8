use super::*;
use rustix::net::{SocketFlags, SocketType, connect, listen, socket_with};
use std::os::fd::AsRawFd;

const USER: u32 = 5;
const KEY: Key = (7, 1);

struct Pool {
    place: tempfile::TempDir,
    directory: OwnedFd,
    sockets: Sockets,
}

impl Pool {
    fn new() -> Pool {
        let place = tempfile::tempdir().unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let directory = rustix::fs::open(place.path(), flags, Mode::empty()).unwrap();
        let sockets = Sockets::open(&directory, |_| true).unwrap();
        Pool {
            place,
            directory,
            sockets,
        }
    }

    fn bind(&mut self, key: Key, socket: &OwnedFd, path: &[u8]) -> Result<(), Errno> {
        let copy = socket.try_clone().unwrap();
        self.sockets
            .bind(&self.directory, key, (copy, path), USER, |_| true)
    }

    fn listed(&self, folder: &str) -> usize {
        let listed = std::fs::read_dir(self.place.path().join(folder));
        listed.map_or(0, |listed| listed.count())
    }
}

fn socket() -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap()
}

fn connected(node: &OwnedFd) -> Result<(), Errno> {
    let path = format!("/proc/self/fd/{}", node.as_raw_fd());
    connect(socket(), &SocketAddrUnix::new(path).unwrap())
}

fn told(socket: &OwnedFd) -> Vec<u8> {
    name_of(socket.try_clone().unwrap()).unwrap()
}

#[test]
fn what_is_bound_is_found_and_called_as_its_program_calls_it() {
    let mut pool = Pool::new();
    let here = std::env::current_dir().unwrap();
    assert_eq!(pool.sockets.find(KEY).err(), Some(Errno::CONNREFUSED));
    let longest = [b"/arck/".as_slice(), &[b'x'; 102]].concat();
    let [short, almost] = [106, 107].map(|length| &longest[..length]);
    for (number, path) in [
        b"/arck/d/s".as_slice(),
        b"s",
        b"00000007-00000001",
        short,
        almost,
        &longest,
    ]
    .into_iter()
    .enumerate()
    {
        let key = (7 + number as u32, 1);
        let socket = socket();
        pool.bind(key, &socket, path).unwrap();
        let name: Vec<u8> = path
            .iter()
            .map(|b| if *b == b'/' { 0xff } else { *b })
            .collect();
        assert_eq!(told(&socket), name);
        let node = pool.sockets.find(key).unwrap();
        assert_eq!(connected(&node), Err(Errno::CONNREFUSED), "nobody listens");
        listen(&socket, 1).unwrap();
        assert_eq!(connected(&node), Ok(()));
        // It is the node, and nothing else of it, that all may write.
        let status = rustix::fs::fstat(&node).unwrap();
        assert_eq!(status.st_mode, libc::S_IFSOCK | 0o666);
        // Once.
        assert_eq!(pool.bind(key, &self::socket(), path), Err(Errno::ADDRINUSE));
        assert_eq!(pool.bind((key.0, 2), &socket, path), Err(Errno::INVAL));
        // Who asks again, because he was not answered, is told that it is done.
        assert_eq!(pool.bind(key, &socket, path), Ok(()));
        drop(socket);
        assert_eq!(connected(&node), Err(Errno::CONNREFUSED));
    }
    assert_eq!(pool.listed(SOCKETS_BINDING), 0);
    assert_eq!(std::env::current_dir().unwrap(), here, "of this thread");
}

#[test]
fn what_is_no_unix_socket_or_no_name_is_refused() {
    let mut pool = Pool::new();
    let (end, _other) = rustix::pipe::pipe().unwrap();
    assert_eq!(pool.bind(KEY, &end, b"s"), Err(Errno::NOTSOCK));
    let other = socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    );
    assert_eq!(pool.bind(KEY, &other.unwrap(), b"s"), Err(Errno::INVAL));
    let path_only = rustix::fs::open("/", OFlags::PATH, Mode::empty()).unwrap();
    assert_eq!(pool.bind(KEY, &path_only, b"s"), Err(Errno::BADF));
    for path in [b"".as_slice(), b".", b"..", b"a\0b", &[b'x'; 109]] {
        assert!(pool.bind(KEY, &socket(), path).is_err());
    }
    assert_eq!((pool.listed(SOCKETS), pool.listed(SOCKETS_BINDING)), (0, 0));
    pool.bind(KEY, &socket(), b"s").unwrap();
}

#[test]
fn nodes_of_inodes_that_are_gone_go_and_others_stay() {
    let mut pool = Pool::new();
    let bound = socket();
    pool.bind(KEY, &bound, b"s").unwrap();
    pool.bind((8, 1), &socket(), b"t").unwrap();
    listen(&bound, 1).unwrap();
    std::fs::write(pool.place.path().join(SOCKETS_BINDING).join("left"), "").unwrap();
    pool.sockets = Sockets::open(&pool.directory, |key| key == KEY).unwrap();
    assert_eq!(pool.listed(SOCKETS), 1);
    assert!(!pool.place.path().join(SOCKETS_BINDING).exists());
    assert_eq!(connected(&pool.sockets.find(KEY).unwrap()), Ok(()));
    assert_eq!(pool.bind(KEY, &socket(), b"s"), Err(Errno::ADDRINUSE));
}

#[test]
fn one_user_leaves_others_theirs() {
    let mut pool = Pool::new();
    pool.sockets.nodes.count_as_made(USER, USER_MAX);
    assert_eq!(pool.bind(KEY, &socket(), b"s"), Err(Errno::NFILE));
    let bound = pool
        .sockets
        .bind(&pool.directory, KEY, (socket(), b"s"), USER + 1, |_| true);
    assert_eq!(bound, Ok(()));
}
