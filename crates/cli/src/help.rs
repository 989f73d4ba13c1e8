//! How wide help is.
//!
//! Invariant: no line of any help is wider than [`WIDTH`], whatever it is written to. What clap does
//! not wrap well, examples and what follows the options, is wrapped by hand: clap would break its
//! lines a second time.

/// Columns of the narrowest terminal that is usual.
pub const WIDTH: usize = 80;

#[cfg(test)]
mod tests {
    use super::WIDTH;
    use clap::CommandFactory;

    fn check(command: &mut clap::Command) {
        let name = command.get_name().to_owned();
        let by_hand = command.get_after_help().map(ToString::to_string);
        let long = command.render_long_help().to_string();
        let short = command.render_help().to_string();
        let texts = [by_hand.unwrap_or_default(), long, short];
        for line in texts.iter().flat_map(|text| text.lines()) {
            assert!(line.chars().count() <= WIDTH, "{name}: {line}");
        }
        for inner in command.get_subcommands_mut() {
            check(inner);
        }
    }

    #[test]
    fn all_help_fits_a_terminal() {
        let mut command = crate::Arguments::command();
        command.build();
        assert!(command.get_subcommands().count() > 8);
        check(&mut command);
    }
}
