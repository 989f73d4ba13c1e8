//! Messages: what decodes is encoded as it was, but text that was mended where it was read.
//!
//! The first byte says which decoder.

use crate::seed::Seed;
use arck_protocol::message::{MESSAGE_MAX, Request, Response};
use arck_protocol::socket::{Answer, Call};

const REQUEST: u8 = 0;
const RESPONSE: u8 = 1;
const CALL: u8 = 2;
const ANSWER: u8 = 3;

pub fn run(bytes: &[u8]) {
    let Some((decoder, bytes)) = bytes.split_first() else {
        return;
    };
    // No decoder takes a longer one.
    let mut buffer = [0; MESSAGE_MAX];
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
                assert_eq!(&buffer[..used], bytes, "{response:?}");
            }
        }
        CALL => {
            if let Ok(call) = Call::decode(bytes) {
                let used = call.encode(&mut buffer).expect("room");
                assert_eq!(&buffer[..used], bytes, "{call:?}");
            }
        }
        ANSWER => {
            if let Ok(answer) = Answer::decode(bytes) {
                let used = answer.encode(&mut buffer).expect("room");
                let again = Answer::decode(&buffer[..used]).expect("what was encoded");
                // Text that is not UTF-8 grows where it is read, and is cut where it is written.
                let is_text = matches!((&answer, &again), (Answer::Error(a, _), Answer::Error(b, _)) if a == b);
                assert!(
                    is_text || again == answer && &buffer[..used] == bytes,
                    "{answer:?}"
                );
            }
        }
        _ => {}
    }
}

pub fn seeds() -> Vec<Seed> {
    let mut seeds: Vec<Seed> = Vec::new();
    let mut add = |decoder: u8, name: String, encode: &dyn Fn(&mut [u8]) -> Option<usize>| {
        let mut buffer = vec![decoder; MESSAGE_MAX + 1];
        if let Some(used) = encode(&mut buffer[1..]) {
            buffer.truncate(used + 1);
            seeds.push((name, buffer));
        }
    };
    for (at, request) in Request::examples().iter().enumerate() {
        let encode = |b: &mut [u8]| request.encode(b).ok();
        add(REQUEST, format!("request-{at}"), &encode);
    }
    for (at, response) in Response::examples().iter().enumerate() {
        let encode = |b: &mut [u8]| response.encode(b).ok();
        add(RESPONSE, format!("response-{at}"), &encode);
    }
    for (at, call) in Call::examples().iter().enumerate() {
        add(CALL, format!("call-{at}"), &|b| call.encode(b).ok());
    }
    for (at, answer) in Answer::examples().iter().enumerate() {
        add(ANSWER, format!("answer-{at}"), &|b| answer.encode(b).ok());
    }
    seeds
}
