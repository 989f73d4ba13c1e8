//! What is said to a worker: an order, a line of JSON; and its answer, another.
//!
//! Invariant: to each order there is one answer, in the order of the orders; a worker ends when there are no more.

use crate::outcome::Outcome;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A worker that is told what to do, one thing after the other.
pub struct Conversation {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Conversation {
    pub fn start(mut command: Command) -> Outcome<Conversation> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(|error| format!("starting a worker: {error}"))?;
        let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a worker has no pipes".to_owned());
        };
        Ok(Conversation {
            child,
            orders,
            answers: BufReader::new(answers),
        })
    }

    /// Gives an order, and waits for no answer.
    pub fn tell(&mut self, order: &impl Serialize) -> Outcome<()> {
        let mut line = serde_json::to_string(order).map_err(|error| error.to_string())?;
        line.push('\n');
        let told = self.orders.write_all(line.as_bytes());
        told.map_err(|error| format!("a worker: {error}"))
    }

    /// The answer to the oldest order that has had none yet.
    pub fn hear<A: DeserializeOwned>(&mut self) -> Outcome<A> {
        let mut answer = String::new();
        match self.answers.read_line(&mut answer) {
            Err(error) => Err(format!("a worker: {error}")),
            Ok(0) => Err("a worker ended too early".to_owned()),
            Ok(_) => serde_json::from_str::<Outcome<A>>(&answer)
                .map_err(|error| format!("a worker's answer makes no sense: {error}"))?,
        }
    }

    pub fn ask<A: DeserializeOwned>(&mut self, order: &impl Serialize) -> Outcome<A> {
        self.tell(order)?;
        self.hear()
    }

    /// Waits until the worker has ended, which it does without orders.
    pub fn end(self) -> Outcome<()> {
        let Conversation {
            mut child, orders, ..
        } = self;
        drop(orders);
        match child.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("a worker failed: {status}")),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// In a worker: answers orders until there are no more.
pub fn answer<O: DeserializeOwned, A: Serialize>(
    mut obey: impl FnMut(O) -> Outcome<A>,
) -> Outcome<()> {
    for line in std::io::stdin().lines() {
        let line = line.map_err(|error| error.to_string())?;
        let order = serde_json::from_str(&line).map_err(|error| error.to_string())?;
        let answer = serde_json::to_string(&obey(order)).map_err(|error| error.to_string())?;
        println!("{answer}");
    }
    Ok(())
}
