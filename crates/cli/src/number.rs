//! Numbers on the command line.

use std::str::FromStr;

/// A number of options such as `--limit`.
///
/// # Errors
/// What is wanted instead.
pub fn parse<T: FromStr>(text: &str) -> Result<T, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().map_err(|_| match is_number {
        true => "that is more than can be".to_owned(),
        false => "a number is wanted, such as 3".to_owned(),
    })
}
