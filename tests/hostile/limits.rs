//! Limits that a compiled guest hardly reaches: hand-made modules, and the places of an engine.

use std::time::Duration;

use bc_runtime::{Config, Engine, Inspected, Kind, Outcome, Run};
use bc_tests::hand_made;
use bc_tests::node::{self, Node};
use better_compute::kind::pack;
use serde_json::json;

use crate::mode;

/// A kind with the limits of [`hand_made::manifest`] whose `run` is this.
fn kind(fields: &str, body: &str) -> Kind {
    let component = hand_made::component(&hand_made::core_module(fields, body), &[]);
    bc_tests::load(&Inspected::from_bytes(pack::embed(component, &hand_made::manifest())).expect("it is a kind"))
}

async fn outcome(fields: &str, body: &str) -> Outcome {
    let kind = kind(fields, body);
    kind.run(bc_tests::run(&kind, json!({}))).await.outcome
}

const MEMORY: Outcome = Outcome::Memory { limit_bytes: 1 << 20 };

#[tokio::test]
async fn a_hand_made_kind_succeeds() {
    assert_eq!(outcome("", "").await, Outcome::Succeeded { result: json!({}) });
}

#[tokio::test]
async fn memory_is_limited_when_it_grows_and_when_it_is_there_from_the_start() {
    assert_eq!(outcome("", "(drop (memory.grow (i32.const 15)))").await, Outcome::Succeeded { result: json!({}) });
    assert_eq!(outcome("", "(drop (memory.grow (i32.const 16)))").await, MEMORY);
    assert_eq!(outcome("(memory 17)", "").await, MEMORY);
}

#[tokio::test]
async fn memories_share_one_limit() {
    assert_eq!(outcome("(memory $other 8)", "(drop (memory.grow $other (i32.const 8)))").await, MEMORY);
}

#[tokio::test]
async fn tables_are_limited_together() {
    let grow = |table: &str, n: u32| format!("(drop (table.grow {table} (ref.null func) (i32.const {n})))");
    assert_eq!(
        outcome("(table $a 1 funcref)", &grow("$a", 100_000)).await,
        Outcome::Succeeded { result: json!({}) },
        "far more than a compiler makes"
    );
    assert_eq!(outcome("(table $a 1 funcref)", &grow("$a", 200_000)).await, MEMORY);
    let both = [grow("$a", 150_000), grow("$b", 150_000)].concat();
    assert_eq!(outcome("(table $a 1 funcref) (table $b 1 funcref)", &both).await, MEMORY);
    assert_eq!(outcome("(table 300000 funcref)", "").await, MEMORY);
}

#[tokio::test]
async fn a_start_function_has_the_same_budget() {
    let outcome = outcome("(func $start (loop (br 0))) (start $start)", "").await;
    assert_eq!(outcome, Outcome::Cpu { limit_ms: 100 });
}

/// One place, and a run that hangs in it: who waits for the place does so until its cancel or its deadline.
#[tokio::test]
async fn a_run_that_waits_for_its_place_is_cancelled_and_has_its_deadline() {
    let engine = Engine::new(&Config { max_runs: 1, ..Config::default() }).expect("an engine");
    let kind = engine.load(&bc_tests::inspected("test.hostile")).expect("it loads");
    let (hang, held) = node::hang();
    let node = Node::scripted(move |_| {
        hang.block();
        Ok(())
    });
    let first = Run { capabilities: node.capabilities(), ..bc_tests::run(&kind, mode("nvml")) };
    let late = Run { timeout: Some(Duration::from_millis(20)), ..bc_tests::run(&kind, mode("ok")) };
    let unwanted = bc_tests::run(&kind, mode("ok"));
    let (end_first, cancel) = (first.cancel.clone(), unwanted.cancel.clone());
    let others = async {
        held.begun().await;
        cancel.cancel();
        let ended = tokio::join!(kind.run(late), kind.run(unwanted));
        end_first.cancel();
        ended
    };
    let (first, (late, unwanted)) = tokio::join!(kind.run(first), others);
    assert_eq!(late.outcome, Outcome::Deadline { during: None });
    assert_eq!(unwanted.outcome, Outcome::Cancelled);
    assert_eq!(first.outcome, Outcome::Cancelled);
}

#[tokio::test]
async fn a_result_outside_of_memory_is_a_trap() {
    let Outcome::Trap { message, .. } = outcome("", "(return (i32.const -4))").await else {
        panic!("it breaks the ABI")
    };
    assert!(message.contains("pointer"), "{message}");
}
