//! A loaded kind: compiled and linked.

use std::sync::{Arc, OnceLock};

use bc_proto::manifest::Manifest;
use bc_proto::schema::{Problem, Schema};
use serde_json::Value;
use wasmtime::component::{Component, Linker};

use crate::engine::Engine;
use crate::inspect::{Inspected, Rejected};
use crate::store::RunState;
use crate::v1;

/// A kind that can be run, any number of times at once. Clones are handles to one.
#[derive(Clone)]
pub struct Kind(pub(crate) Arc<Loaded>);

pub(crate) struct Loaded {
    pub(crate) engine: Engine,
    pub(crate) digest: String,
    pub(crate) manifest: Arc<Manifest>,
    payload: OnceLock<Schema>,
    result: OnceLock<Schema>,
    pub(crate) guest: v1::GuestPre<RunState>,
}

impl Loaded {
    /// The payload's schema. Compiled when it is first used: a start loads all kinds and runs few of them.
    fn payload(&self) -> &Schema {
        self.payload.get_or_init(|| compiled(&self.manifest.payload))
    }

    /// The result's schema, likewise.
    pub(crate) fn result(&self) -> &Schema {
        self.result.get_or_init(|| compiled(&self.manifest.result))
    }
}

fn compiled(schema: &Value) -> Schema {
    Schema::compile(schema).expect("a manifest's schemas were compiled when it was read")
}

impl Engine {
    /// Compiles a component, or takes its compiled code from the cache, and links it. Only the interfaces that the manifest
    /// declares are linked. Blocks for as long as compiling takes.
    pub fn load(&self, inspected: &Inspected) -> Result<Kind, Rejected> {
        let faults = inspected.faults();
        if !faults.is_empty() {
            return Err(Rejected::Faults(faults));
        }
        let component = self.compiled(inspected)?;
        let link = |error: wasmtime::Error| Rejected::Link(format!("{error:#}"));
        let mut linker = Linker::new(self.wasm());
        v1::link(&mut linker, &inspected.manifest.capabilities.capabilities(), &inspected.imports).map_err(link)?;
        let guest = linker.instantiate_pre(&component).and_then(v1::GuestPre::new).map_err(link)?;
        Ok(Kind(Arc::new(Loaded {
            engine: self.clone(),
            digest: inspected.digest.clone(),
            payload: OnceLock::new(),
            result: OnceLock::new(),
            manifest: Arc::new(inspected.manifest.clone()),
            guest,
        })))
    }

    fn compiled(&self, inspected: &Inspected) -> Result<Component, Rejected> {
        if let Some(component) = self.cache().and_then(|cache| cache.get(self.wasm(), &inspected.digest)) {
            return Ok(component);
        }
        let component =
            Component::new(self.wasm(), &inspected.bytes).map_err(|error| Rejected::Compile(format!("{error:#}")))?;
        if let Some(cache) = self.cache() {
            cache.put(&inspected.digest, &component);
        }
        Ok(component)
    }
}

impl Kind {
    /// SHA-256 of the component's file.
    pub fn digest(&self) -> &str {
        &self.0.digest
    }

    /// What it declares.
    pub fn manifest(&self) -> &Manifest {
        &self.0.manifest
    }

    /// What is wrong with a payload by its schema. [`Kind::validate`] asks the kind itself as well.
    pub fn schema_problems(&self, payload: &Value) -> Vec<Problem> {
        self.0.payload().problems(payload)
    }
}
