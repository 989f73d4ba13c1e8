//! `arck status`: what a served pool says of itself.

use crate::support::{Place, Serving, arck, refused, succeeded};
use std::path::Path;
use std::process::Output;

fn status(pool: &Path, arguments: &[&str]) -> Output {
    let mut command = arck();
    command.arg("status").arg(pool).args(arguments);
    command.output().unwrap()
}

#[test]
fn a_served_pool_tells_how_it_is() {
    let place = Place::made();
    let pool = place.pool();
    refused(&status(&pool, &[]), "nobody serves the pool");
    let _serving = Serving::start(&pool, &[]);
    let text = succeeded(&status(&pool, &[]));
    assert!(text.contains(": served\n  sessions      0\n"), "{text}");
    assert!(text.contains("closing       nothing"), "{text}");
    let json: serde_json::Value =
        serde_json::from_str(&succeeded(&status(&pool, &["--json"]))).unwrap();
    assert_eq!(json["closings"], 0);
    assert!(json["bytes_free"].as_u64().unwrap() > 0, "{json}");
}
