//! The pure part: no host calls here, so that plain `cargo test` tests it.

use serde::Serialize;

/// The result.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Greeting {
    greeting: String,
}

/// Greets someone.
pub(crate) fn greet(name: &str) -> Greeting {
    Greeting { greeting: format!("Hello, {name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_names_whom_it_greets() {
        assert_eq!(greet("operator"), Greeting { greeting: "Hello, operator".into() });
    }
}
