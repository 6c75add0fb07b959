//! A trap says what the guest said and where it was.

use bc_runtime::{Frame, Outcome};

use crate::report;

/// A trap's message, and whether its frames name the function.
async fn trap(mode: &str, function: &str) -> String {
    let outcome = report(mode).await.outcome;
    let Outcome::Trap { message, frames } = &outcome else { panic!("{mode}: {outcome}") };
    let path = format!("hostile_guest::modes::{function}");
    assert!(frames.contains(&Frame { function: path }), "{frames:?}");
    assert!(frames.len() <= 32, "{} frames", frames.len());
    assert!(outcome.to_string().contains(function), "it is shown to people too");
    message.clone()
}

#[tokio::test]
async fn promise_26_a_panic_reports_its_message_its_place_and_the_guests_functions() {
    let message = trap("panic", "panic_with_a_message").await;
    assert!(message.contains("hostile guest panics: no GPU 7 here"), "{message}");
    assert!(message.contains("src/modes.rs:"), "{message}");
}

#[tokio::test]
async fn promise_26_a_trap_without_a_word_reports_its_name_and_the_guests_functions() {
    assert_eq!(trap("trap", "trap_on_unreachable").await, "wasm trap: wasm `unreachable` instruction executed");
}

#[tokio::test]
async fn promise_26_a_recursion_reports_that_the_stack_is_exhausted_and_where() {
    assert_eq!(trap("recurse", "recurse").await, "wasm trap: call stack exhausted");
}
