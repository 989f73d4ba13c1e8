//! Descriptors that programs send (SCM_RIGHTS) to processes that the library is not loaded into: here, to the test itself; and
//! to those that it is loaded into, where the mount is beneath all the same. Needs root, and the kernel's FUSE.

use crate::support::{Place, Running, run, succeeded};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::fs::File;
use std::io::{IoSliceMut, Read, Seek, Write};
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Stdio;
use std::time::Duration;

/// Sends what it has opened on the pool, waits until the other side is done, and tells what is there then.
const SENDER: &str = r#"
import os, socket, sys
to = socket.socket(socket.AF_UNIX)
to.connect(sys.argv[1])
os.mkdir('/arck/d')
both = os.open('/arck/d/both', os.O_RDWR | os.O_CREAT, 0o640)
os.write(both, b'0123456789')
os.lseek(both, 4, os.SEEK_SET)
reads = os.open('/arck/d/both', os.O_RDONLY)
host = os.open('/dev/null', os.O_RDONLY)
folder = os.open('/arck/d', os.O_RDONLY | os.O_DIRECTORY)
open_before = len(os.listdir('/proc/self/fd'))
if sys.argv[2] == 'sendmsg':
    socket.send_fds(to, [b'1'], [both, host, reads, folder])
else:
    import ctypes, array
    rights = array.array('i', [both, host, reads, folder]).tobytes()
    control = ctypes.create_string_buffer(
        (16 + len(rights)).to_bytes(8, 'little') + (1).to_bytes(4, 'little') * 2 + rights, 16 + len(rights))
    byte = ctypes.create_string_buffer(b'1', 1)
    vector = (ctypes.c_void_p * 2)(ctypes.addressof(byte), 1)
    heads = (ctypes.c_void_p * 8)(0, 0, ctypes.addressof(vector), 1, ctypes.addressof(control), len(control), 0, 0)
    assert ctypes.CDLL(None, use_errno=True).sendmmsg(to.fileno(), heads, 1, 0) == 1, ctypes.get_errno()
assert to.recv(1) == b'2'
print(open('/arck/d/both').read(), os.lseek(both, 0, os.SEEK_CUR), len(os.listdir('/proc/self/fd')) - open_before)
"#;

fn received(socket: &UnixStream) -> Vec<File> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    recvmsg(socket, &mut parts, &mut control, flags).unwrap();
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    });
    rights.flatten().map(File::from).collect()
}

fn expect_root() {
    assert!(
        rustix::process::geteuid().is_root(),
        "only root has a mount namespace of his own: run this as root (sudo -E cargo test)"
    );
}

/// Listens, and reads two bytes of what it is sent, moving the place at which both are.
const RECEIVER: &str = r#"
import os, socket, sys
listens = socket.socket(socket.AF_UNIX)
listens.bind(sys.argv[1])
listens.listen()
print('listens', flush=True)
other, _ = listens.accept()
_, files, _, _ = socket.recv_fds(other, 1, 8)
both = files[0]
print(os.read(both, 2).decode(), os.readlink('/proc/self/fd/%d' % both), flush=True)
other.send(b'2')
other.recv(1)
"#;

/// Who has the library gets the sender's own description, with its place.
#[test]
fn a_descriptor_that_is_sent_to_who_has_the_library_is_the_senders() {
    expect_root();
    let place = Place::made();
    let path = place.path().join("socket");
    let path = path.to_str().unwrap();
    let mut receiver = Running::start(run(&place.pool(), &[], &["python3", "-c", RECEIVER, path]));
    assert_eq!(receiver.line(), "listens");
    let words = ["python3", "-c", SENDER, path, "sendmsg"];
    let sender = run(&place.pool(), &[], &words).output().unwrap();
    // The receiver has moved it on by two. (The library keeps a descriptor of each that it has handed on.)
    let told = succeeded(&sender);
    assert!(told.starts_with("0123456789 6 "), "{told}");
    let told = receiver.finished(Duration::from_secs(60));
    assert_eq!(succeeded(&told), "45 /arck/d/both\n");
}

#[test]
fn a_descriptor_that_is_sent_to_a_stranger_is_one_of_the_mounts() {
    expect_root();
    for way in ["sendmsg", "sendmmsg"] {
        let place = Place::made();
        let path = place.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let words = ["python3", "-c", SENDER, path.to_str().unwrap(), way];
        let mut command = run(&place.pool(), &[], &words);
        let sender = command.stdout(Stdio::piped()).spawn().unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let files = received(&socket);
        let [mut both, host, mut reads, folder] = <[File; 4]>::try_from(files).unwrap();
        // At the place where the sender is.
        let mut text = String::new();
        both.read_to_string(&mut text).unwrap();
        assert_eq!(text, "456789", "{way}");
        assert_eq!(reads.stream_position().unwrap(), 0);
        assert!(reads.write(b"no").is_err(), "{way}: with more rights");
        assert!(folder.metadata().unwrap().is_dir(), "{way}");
        assert!(!host.metadata().unwrap().is_file(), "{way}");
        both.write_at(b"ab", 0).unwrap();
        both.sync_all().unwrap();
        drop((both, reads, folder));
        socket.write_all(b"2").unwrap();
        let output = sender.wait_with_output().unwrap();
        // What was sent is not left open.
        assert_eq!(succeeded(&output), "ab23456789 4 0\n", "{way}");
    }
}
