//! Finding the system that is meant.
//!
//! **Invariant:** where a BMC has several systems, none is chosen by chance.

use serde_json::Value;

use crate::client::{Client, Resource};
use crate::{Problem, text};

/// The service's root.
pub(crate) const ROOT: &str = "/redfish/v1/";

/// The most members of a collection that are read.
pub(crate) const MAX_MEMBERS: usize = 64;

/// A computer system, as last read.
#[derive(Debug, Clone)]
pub struct System {
    /// The BMC's id of it.
    pub id: String,
    /// The resource.
    pub resource: Resource,
}

impl Client<'_> {
    /// The system of an id, or the only one.
    pub fn system(&mut self, id: Option<&str>) -> Result<System, Problem> {
        let root = self.get(ROOT)?;
        let systems = text(&root.body, "/Systems/@odata.id")
            .ok_or_else(|| Problem::new("not-redfish", "the BMC's service root names no systems"))?
            .to_owned();
        let members = self.members(&systems)?;
        let named = |path: &String| path.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned();
        let path = match id {
            Some(id) => members.iter().find(|path| named(path) == id),
            None if members.len() > 1 => {
                let ids: Vec<_> = members.iter().map(named).collect();
                let message = format!("the BMC has several systems; name one as `system`: {}", ids.join(", "));
                return Err(Problem::new("which-system", message));
            }
            None => members.first(),
        };
        let path = path.ok_or_else(|| {
            let ids: Vec<_> = members.iter().map(named).collect();
            let message = match id {
                Some(id) => format!("the BMC has no system '{id}'; it has: {}", ids.join(", ")),
                None => "the BMC has no system".to_owned(),
            };
            Problem::new("no-such-system", message)
        })?;
        let resource = self.get(path)?;
        Ok(System { id: named(path), resource })
    }

    /// The links of a collection.
    pub(crate) fn members(&mut self, path: &str) -> Result<Vec<String>, Problem> {
        let collection = self.get(path)?;
        let members = collection.body.get("Members").and_then(Value::as_array).into_iter().flatten();
        Ok(members.filter_map(|it| text(it, "/@odata.id")).map(str::to_owned).take(MAX_MEMBERS).collect())
    }
}
