//! Typed identifiers in the TypeID format: a prefix that names the type, `_`, and a UUID in 26 characters of Crockford's
//! base 32. A UUID version 7 makes them sort by age.
//!
//! **Invariant:** an id of one type never parses as another. Whoever makes an id supplies its UUID; nothing here draws
//! random numbers or reads a clock.

use type_safe_id::{StaticType, TypeSafeId};

macro_rules! ids {
    ($($(#[$doc:meta])* $id:ident = $tag:ident $prefix:literal;)*) => {$(
        #[doc = concat!("The tag that makes a `", $prefix, "_…` a type of its own.")]
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $tag;
        impl StaticType for $tag {
            const TYPE: &'static str = $prefix;
        }
        $(#[$doc])*
        pub type $id = TypeSafeId<$tag>;
    )*};
}

ids! {
    /// One queued command.
    CommandId = Command "cmd";
    /// One enrolled machine.
    NodeId = Node "node";
    /// Who owns nodes and commands.
    TenantId = Tenant "tenant";
    /// A set of destructive commands that people approve together.
    BatchId = Batch "batch";
    /// One life of a node's journal; a lost journal comes back with another.
    JournalId = Journal "journal";
    /// A GPU that somebody has reserved on a node.
    AllocationId = Allocation "alloc";
    /// A release on its way to many nodes.
    RolloutId = Rollout "rollout";
    /// A workflow: several commands for one node, one after the other.
    WorkflowId = Workflow "wf";
    /// Where events are sent.
    WebhookId = Webhook "webhook";
    /// An event on its way to a webhook.
    DeliveryId = Delivery "delivery";
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn an_id_names_its_type_and_no_other() {
        let id = CommandId::from_uuid(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0001));
        let text = id.to_string();
        assert!(text.starts_with("cmd_") && text.len() == 30, "{text}");
        assert_eq!(text.parse::<CommandId>().ok(), Some(id));
        assert!(text.parse::<NodeId>().is_err());
        assert!("cmd_not-a-suffix".parse::<CommandId>().is_err());
    }
}
