//! Who may do what: permissions on resources, granted by pattern.
//!
//! A permission is `compute:<what>:<verb>`, a resource `<type>/<name>`. In a grant either may end in `*`, which stands for
//! whatever follows; anywhere else `*` is not a pattern, and such a grant allows nothing.
//!
//! **Invariant:** no grant means no permission; nothing here takes a permission away.

use std::fmt;

/// All permissions there are.
pub const ALL: [&str; 16] = [
    "compute:nodes:read",
    "compute:nodes:exec",
    "compute:nodes:write",
    "compute:nodes:join",
    "compute:kinds:read",
    "compute:kinds:write",
    "compute:events:read",
    "compute:tokens:write",
    "compute:batches:create",
    "compute:batches:read",
    "compute:batches:approve",
    "compute:specs:write",
    "compute:reservations:write",
    "compute:audit:read",
    "compute:webhooks:read",
    "compute:webhooks:write",
];

/// The types of resources that grants name.
pub const RESOURCE_TYPES: [&str; 3] = ["compute-node", "kind", "tenant"];

/// The longest permission or resource in a grant, bytes.
pub const MAX_BYTES: usize = 200;

/// What is allowed: a permission and a resource, each with `*` at its end or without.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    /// `compute:nodes:read`, `compute:*`.
    pub permission: String,
    /// `compute-node/<id>`, `kind/diag.*`, `*`.
    pub resource: String,
}

/// Why a grant says nothing. Each is a rule, in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invalid {
    /// No permission there is fits it.
    Permission,
    /// It names no type of resource.
    Resource,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Permission => {
                write!(f, "must be a permission, or the beginning of one followed by `*`; there are {}", ALL.join(", "))
            }
            Self::Resource => {
                let types = RESOURCE_TYPES.map(|it| format!("{it}/…"));
                write!(f, "must be {} or `*`, with `*` nowhere but at its end", types.join(", "))
            }
        }
    }
}

impl Grant {
    /// A grant of a permission on a resource.
    pub fn new(permission: impl Into<String>, resource: impl Into<String>) -> Self {
        Self { permission: permission.into(), resource: resource.into() }
    }

    /// Whether it allows this.
    pub fn allows(&self, permission: &str, resource: &str) -> bool {
        is_within(&self.permission, permission) && is_within(&self.resource, resource)
    }

    /// Whether it allows all that another grant does.
    pub fn covers(&self, other: &Grant) -> bool {
        self.allows(&other.permission, &other.resource)
    }

    /// What is wrong with it, if it could never allow anything.
    pub fn check(&self) -> Result<(), Invalid> {
        if self.permission.len() > MAX_BYTES || !ALL.iter().any(|it| is_within(&self.permission, it)) {
            return Err(Invalid::Permission);
        }
        let stem = self.resource.strip_suffix('*').unwrap_or(&self.resource);
        let is_typed = RESOURCE_TYPES.iter().any(|it| stem.strip_prefix(it).is_some_and(|rest| rest.starts_with('/')));
        let is_plain = !stem.contains('*') && stem.bytes().all(|byte| byte.is_ascii_graphic());
        if self.resource.len() > MAX_BYTES || !is_plain || !(is_typed || self.resource == "*") {
            return Err(Invalid::Resource);
        }
        Ok(())
    }
}

/// Whether one of these grants allows this.
pub fn is_allowed<'a>(grants: impl IntoIterator<Item = &'a Grant>, permission: &str, resource: &str) -> bool {
    grants.into_iter().any(|grant| grant.allows(permission, resource))
}

/// Whether all that `pattern` says includes all that `text`, itself perhaps a pattern, says.
fn is_within(pattern: &str, text: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(stem) => !stem.contains('*') && text.starts_with(stem),
        None => !pattern.contains('*') && pattern == text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_table() {
        let grants = [
            ("compute:*", "*"),
            ("compute:nodes:*", "compute-node/*"),
            ("compute:nodes:exec", "compute-node/node_1"),
            ("compute:kinds:write", "kind/diag.*"),
            ("compute:tokens:write", "tenant/tenant_1"),
            ("*:nodes:exec", "compute-node/*"),
            ("compute:nodes:exec", "compute-node/*_1"),
            ("compute:nodes:exec", ""),
            ("", "*"),
        ];
        let asked = [
            ("compute:nodes:read", "compute-node/node_1"),
            ("compute:nodes:exec", "compute-node/node_1"),
            ("compute:nodes:exec", "compute-node/node_12"),
            ("compute:nodes:join", "tenant/tenant_1"),
            ("compute:kinds:write", "kind/diag.nvml"),
            ("compute:kinds:write", "kind/gpu.reset"),
            ("compute:tokens:write", "tenant/tenant_1"),
            ("compute:tokens:write", "tenant/tenant_12"),
        ];
        let mut table = String::new();
        for (permission, resource) in grants {
            let grant = Grant::new(permission, resource);
            table += &format!("{permission} on {resource}\n");
            for (permission, resource) in asked {
                let word = if grant.allows(permission, resource) { "yes" } else { "no" };
                table += &format!("    {permission} on {resource}: {word}\n");
            }
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn a_grant_covers_what_is_narrower_and_nothing_wider() {
        let all = Grant::new("compute:*", "*");
        let nodes = Grant::new("compute:nodes:*", "compute-node/*");
        let one = Grant::new("compute:nodes:exec", "compute-node/node_1");
        for (wide, narrow) in [(&all, &nodes), (&nodes, &one), (&all, &one)] {
            assert!(wide.covers(narrow) && wide.covers(wide) && !narrow.covers(wide), "{wide:?} {narrow:?}");
        }
        assert!(!one.covers(&Grant::new("compute:nodes:exec", "compute-node/node_1*")));
    }

    #[test]
    fn a_grant_that_could_never_allow_anything_is_refused() {
        for (permission, resource, expected) in [
            ("compute:*", "*", Ok(())),
            ("*", "*", Ok(())),
            ("compute:nodes:read", "compute-node/*", Ok(())),
            ("compute:kinds:write", "kind/diag.*", Ok(())),
            ("compute:nodes:fly", "*", Err(Invalid::Permission)),
            ("compute:*:read", "*", Err(Invalid::Permission)),
            ("", "*", Err(Invalid::Permission)),
            ("compute:*", "", Err(Invalid::Resource)),
            ("compute:*", "node/*", Err(Invalid::Resource)),
            ("compute:*", "compute-node*", Err(Invalid::Resource)),
            ("compute:*", "kind/*.nvml", Err(Invalid::Resource)),
            ("compute:*", "kind/a\u{0}", Err(Invalid::Resource)),
        ] {
            assert_eq!(Grant::new(permission, resource).check(), expected, "{permission} on {resource}");
        }
    }
}
