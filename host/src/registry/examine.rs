//! May this component be registered? Inspected, linked, and its examples run through its own `validate`.
//!
//! **Invariant:** every obstacle is named with its remedy, and no code of a component runs before its manifest, its imports
//! and its exports were found right.

use bc_runtime::{Inspected, Kind, Rejected};
use tokio::runtime::Handle;
use tokio::task::{JoinError, spawn_blocking};

use super::Registry;
use crate::store::kinds::Digest;

/// One reason not to register a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    /// The rule that it breaks.
    pub rule: String,
    /// What to do about it.
    pub remedy: String,
}

impl Obstacle {
    fn of(rejected: &Rejected) -> Vec<Self> {
        match rejected {
            Rejected::Faults(faults) => {
                faults.iter().map(|fault| Self { rule: fault.to_string(), remedy: fault.remedy() }).collect()
            }
            Rejected::Manifest(bc_proto::manifest::Invalid::Rules(violations)) => violations
                .iter()
                .map(|violation| Self { rule: format!("the manifest: {violation}"), remedy: rejected.remedy() })
                .collect(),
            other => vec![Self { rule: other.to_string(), remedy: other.remedy() }],
        }
    }
}

/// A component that declares itself well. None of its code has run.
#[derive(Debug)]
pub struct Declared {
    /// SHA-256 of it.
    pub digest: Digest,
    /// What it is.
    pub inspected: Inspected,
}

/// What examining answers: a component, or what stands against it.
pub type Verdict<T> = Result<Result<T, Vec<Obstacle>>, JoinError>;

impl Registry {
    /// Reads a component, off the threads that serve requests.
    pub async fn inspect(&self, component: Vec<u8>) -> Verdict<Declared> {
        let _place = self.0.compiling.acquire().await.expect("it is never closed");
        spawn_blocking(move || {
            let inspected = Inspected::from_bytes(component).map_err(|rejected| Obstacle::of(&rejected))?;
            let mut digest = Digest::default();
            hex::decode_to_slice(&inspected.digest, &mut digest).expect("a digest is 64 hexadecimal digits");
            if String::from_utf8_lossy(&inspected.manifest.to_canonical_json()).contains("\\u0000") {
                return Err(vec![Obstacle {
                    rule: "the manifest: holds the character U+0000".into(),
                    remedy: "leave it out of kind.toml; payloads may hold it".into(),
                }]);
            }
            Ok(Declared { digest, inspected })
        })
        .await
    }

    /// Compiles and links a component and tries its examples. What passes is kept, ready for the first command.
    pub async fn examine(&self, declared: Declared) -> Verdict<Declared> {
        let _place = self.0.compiling.acquire().await.expect("it is never closed");
        let engine = self.0.engine.clone();
        let runtime = Handle::current();
        let examined = spawn_blocking(move || {
            let kind = engine.load(&declared.inspected).map_err(|rejected| Obstacle::of(&rejected))?;
            let obstacles = runtime.block_on(try_examples(&kind));
            if obstacles.is_empty() { Ok((declared, kind)) } else { Err(obstacles) }
        });
        Ok(examined.await?.map(|(declared, kind)| {
            self.keep(declared.digest, kind);
            declared
        }))
    }
}

async fn try_examples(kind: &Kind) -> Vec<Obstacle> {
    let mut found = Vec::new();
    for example in &kind.manifest().examples {
        let obstacle = |what: String| Obstacle {
            rule: format!("example '{}': {what}", example.summary),
            remedy: "correct the example in kind.toml, or what the kind's `validate` says of it".into(),
        };
        match kind.validate(&example.payload).await {
            Ok(problems) => found.extend(problems.iter().map(|problem| obstacle(problem.to_string()))),
            Err(outcome) => found.push(obstacle(format!("`validate` {outcome}"))),
        }
    }
    found
}
