//! Messages: what decodes is encoded as it was, but where text is shortened or a number of an
//! error is not a number of an error.
//!
//! The first byte says which decoder.

use crate::Seed;
use arck_core_state::Geometry;
use arck_protocol::measure::HandOvers;
use arck_protocol::message::{MESSAGE_MAX, Request, Response, examples};
use arck_protocol::socket::{Access, Answer, Call, Caller, HandedOn, Welcome};

const REQUEST: u8 = 0;
const RESPONSE: u8 = 1;
const CALL: u8 = 2;
const ANSWER: u8 = 3;

pub fn run(bytes: &[u8]) {
    let Some((decoder, bytes)) = bytes.split_first() else {
        return;
    };
    // No message is longer than this, so none longer is encoded.
    let mut buffer = vec![0; bytes.len().max(MESSAGE_MAX) * 4];
    match *decoder {
        REQUEST => {
            if let Ok(request) = Request::decode(bytes) {
                let used = request.encode(&mut buffer).expect("room");
                assert_eq!(&buffer[..used], bytes, "{request:?}");
            }
        }
        RESPONSE => {
            if let Ok(response) = Response::decode(bytes) {
                let used = response.encode(&mut buffer).expect("room");
                // Reasons of violations are shortened.
                let shortened = matches!(&response, Response::Violation(text) if text.len() > 512);
                assert!(shortened || &buffer[..used] == bytes, "{response:?}");
                let again = Response::decode(&buffer[..used]);
                assert!(shortened || again.as_ref() == Ok(&response), "{again:?}");
            }
        }
        CALL => {
            if let Ok(call) = Call::decode(bytes) {
                let used = call.encode(&mut buffer).expect("room");
                // Of a greeting of another version only that is kept.
                match call {
                    Call::OtherVersion { .. } => {
                        assert_eq!(Call::decode(&buffer[..used]), Ok(call));
                    }
                    _ => assert_eq!(&buffer[..used], bytes, "{call:?}"),
                }
            }
        }
        ANSWER => {
            if let Ok(answer) = Answer::decode(bytes) {
                // Text that is not UTF-8 has grown.
                if let Ok(used) = answer.encode(&mut buffer) {
                    assert_eq!(Answer::decode(&buffer[..used]), Ok(answer));
                }
            }
        }
        _ => {}
    }
}

const HANDED_ON: HandedOn = HandedOn {
    inode: 4,
    generation: 5,
    flags: 0o2002,
    parent: 6,
};

pub fn seeds() -> Vec<Seed> {
    let mut seeds: Vec<Seed> = Vec::new();
    let mut add = |decoder: u8, name: String, encode: &dyn Fn(&mut [u8]) -> Option<usize>| {
        let mut buffer = vec![decoder; MESSAGE_MAX + 1];
        if let Some(used) = encode(&mut buffer[1..]) {
            buffer.truncate(used + 1);
            seeds.push((name, buffer));
        }
    };
    for (at, request) in examples::requests().iter().enumerate() {
        add(REQUEST, format!("request-{at}"), &|b| {
            request.encode(b).ok()
        });
    }
    for (at, response) in examples::responses().iter().enumerate() {
        let encode = |b: &mut [u8]| response.encode(b).ok();
        add(RESPONSE, format!("response-{at}"), &encode);
    }
    let calls = [
        Call::hello(b""),
        Call::hello(b"group"),
        Call::MapSegments {
            segments: vec![1, 2],
        },
        Call::ReadSegments { segments: vec![3] },
        Call::GrantSegment,
        Call::Goodbye,
        Call::Shutdown,
        Call::Measure { on: true },
        Call::Status,
        Call::Resume {
            version: arck_protocol::PROTOCOL_VERSION,
            session: 7,
            secret: [8, u64::MAX],
            member: 9,
            caller: Caller::of_process(b"group"),
        },
        Call::LockFile {
            inode: 1,
            generation: 2,
            access: Access::ReadWrite,
        },
        Call::HandOn(HANDED_ON),
        Call::Claim {
            was_sent: true,
            has_lock: false,
        },
        Call::KeepLock,
    ];
    for (at, call) in calls.iter().enumerate() {
        add(CALL, format!("call-{at}"), &|b| call.encode(b).ok());
    }
    let welcome = Geometry::for_pool_size(64 << 20).map(|geometry| {
        Answer::Welcome(Welcome {
            makes_region: true,
            user: 1000,
            user_group: 100,
            session: 1,
            member: 2,
            geometry,
            uuid: [7; 16],
            hash_seed: 2,
            durability: 1,
            flush: 0,
            branch_pages: 3,
            delta_pages: 4,
            secret: [5, 6],
        })
    });
    let answers = [
        Answer::Segments(vec![1, 2]),
        Answer::Done,
        Answer::Resumed,
        Answer::Ahead,
        Answer::Measured(HandOvers::default()),
        Answer::Status(arck_protocol::Status::default()),
        Answer::Described(HANDED_ON),
        Answer::Error(13, "no".to_owned()),
    ];
    for (at, answer) in welcome.iter().chain(&answers).enumerate() {
        add(ANSWER, format!("answer-{at}"), &|b| answer.encode(b).ok());
    }
    seeds
}
