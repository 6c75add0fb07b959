//! From a core module and a manifest to a kind: encode the component, embed the manifest.
//!
//! **Invariant:** packing the same module and manifest gives the same bytes.

use bc_proto::manifest::{self, Manifest};
use wasm_encoder::{ComponentSection, CustomSection, Encode};
use wit_component::ComponentEncoder;

/// Makes a component of a core module that a guest SDK built. Imports that the module does not use are left out.
pub fn component(module: &[u8]) -> anyhow::Result<Vec<u8>> {
    ComponentEncoder::default().module(module)?.validate(true).encode()
}

/// Appends the manifest to a component.
pub fn embed(mut component: Vec<u8>, manifest: &Manifest) -> Vec<u8> {
    let data = manifest.to_canonical_json();
    let section = CustomSection { name: manifest::SECTION.into(), data: data.into() };
    component.push(section.id());
    section.encode(&mut component);
    component
}
