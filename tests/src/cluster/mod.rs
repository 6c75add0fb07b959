//! A control plane and its nodes as real processes: a throwaway Postgres, replicas of `better-compute server`, and daemons
//! (`bcd run`) on simulated machines. Any of them can be killed at any moment and started again.
//!
//! What is waited for is said by the thing itself: an event of the API, a line of a program's log, the end of a process.
//! Where something is down there is nobody to say so, and it is tried again at a fixed pace.
//!
//! **Invariant:** only processes that were started here are ended, each by its own handle; Postgres by the id in the file that
//! it wrote into this cluster's folder. What they said is shown when the test fails.

pub mod api;
pub mod database;
pub mod node;
pub mod operator;
pub mod process;
pub mod replica;
pub mod systemd;

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use bc_proto::manifest::{Lane, Manifest, Trait};
use tempfile::TempDir;

use self::api::Api;
use self::database::Database;
use self::node::Node;
use self::replica::Replica;

/// How long a test waits for what must happen.
pub const PATIENCE: Duration = Duration::from_mins(1);
/// How long until something that is down, or that tells nobody, is tried again.
const PACE: Duration = Duration::from_millis(50);

/// Returns when something holds that nothing tells of: what other programs write to the disk, or do.
///
/// # Panics
/// When it takes too long.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let held = tokio::time::timeout(PATIENCE, async {
        while !holds() {
            tokio::time::sleep(PACE).await;
        }
    });
    assert!(held.await.is_ok(), "it takes too long until {what}");
}

/// A variant of the counting kind: one component, packed with another manifest.
#[derive(Debug, Clone, Copy)]
pub struct Variant {
    /// Its name.
    pub name: &'static str,
    /// Its traits.
    pub traits: &'static [Trait],
    /// Its lane.
    pub lane: Lane,
}

/// Counts, and is not retry-safe.
pub const COUNT: Variant = Variant { name: "test.count", traits: &[], lane: Lane::Control };
/// Counts, and may run again.
pub const COUNT_SAFE: Variant = Variant { name: "test.count-safe", traits: &[Trait::RetrySafe], lane: Lane::Control };
/// Counts, and is bound to a life of its node.
pub const COUNT_DESTRUCTIVE: Variant =
    Variant { name: "test.count-destructive", traits: &[Trait::Destructive], lane: Lane::Provision };
/// Counts in the lane with the fewest workers.
pub const COUNT_BULK: Variant = Variant { name: "test.count-bulk", traits: &[], lane: Lane::Bulk };

/// Counts in the lane between.
pub const COUNT_PROVISION: Variant = Variant { name: "test.count-provision", traits: &[], lane: Lane::Provision };
/// Counts, and then waits for the reboot that ends it; the test plays that.
pub const COUNT_REBOOT: Variant =
    Variant { name: "test.count-reboot", traits: &[Trait::SelfTerminating], lane: Lane::Control };

/// All variants.
pub const VARIANTS: [Variant; 6] = [COUNT, COUNT_SAFE, COUNT_DESTRUCTIVE, COUNT_BULK, COUNT_PROVISION, COUNT_REBOOT];

impl Variant {
    /// Its component.
    pub fn component(self) -> Vec<u8> {
        let packed = crate::repacked("test.count", |manifest| {
            manifest.name = self.name.into();
            manifest.traits = self.traits.iter().copied().collect();
            manifest.lane = self.lane;
        });
        packed.bytes
    }
}

/// The file with the replicas' settings, beside their state.
const SETTINGS: &str = "control-plane.toml";

/// The whole of it.
pub struct Cluster {
    // Dropped in this order: daemons, replicas, the database, and last the folder.
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The replicas.
    pub replicas: Vec<Replica>,
    /// Its API, through whichever replica answers.
    pub api: Api,
    /// Its database.
    pub database: Database,
    folder: TempDir,
}

impl Cluster {
    /// Starts a database and so many replicas, registers the counting kinds, and lets so many nodes join and run.
    ///
    /// # Panics
    /// When a program is not built or does not do what it is started for.
    pub async fn start(replicas: usize, nodes: usize) -> Self {
        Self::start_with(replicas, nodes, |_| String::new()).await
    }

    /// The same with more settings of the control plane, TOML, made in its folder.
    ///
    /// # Panics
    /// As [`Cluster::start`].
    pub async fn start_with(replicas: usize, nodes: usize, settings: impl FnOnce(&Path) -> String) -> Self {
        // Postgres runs as another user where the test is root, and has to reach its folder.
        let folder = tempfile::Builder::new().prefix("bc-").permissions(Permissions::from_mode(0o711)).tempdir();
        let folder = folder.expect("a temporary folder");
        let settings = settings(folder.path());
        fs::write(folder.path().join(SETTINGS), settings).expect("the settings are written");
        let database = Database::start(&folder.path().join("pg"));
        let token = replica::init_admin(&database, &folder.path().join("control-plane"), "test");
        let mut started = Vec::new();
        for index in 0..replicas {
            started.push(Replica::start(index, &database, &folder.path().join("control-plane")).await);
        }
        let api = Api::new(started.iter().map(Replica::api_url).collect(), token).await;
        for variant in VARIANTS {
            api.register(variant.component()).await;
        }
        let mut cluster = Self { nodes: Vec::new(), replicas: started, api, database, folder };
        for _ in 0..nodes {
            cluster.add_node().await;
        }
        cluster
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Gives all replicas other settings, and starts them anew.
    ///
    /// # Panics
    /// When one does not start.
    pub async fn resettle(&mut self, settings: &str) {
        fs::write(self.folder.path().join(SETTINGS), settings).expect("the settings are written");
        for replica in &mut self.replicas {
            replica.restart().await;
        }
    }

    /// Registers one more component, active and exposed, that the nodes have to fetch.
    pub async fn register(&self, change: impl FnOnce(&mut Manifest)) {
        self.api.register(crate::repacked("test.count", change).bytes).await;
    }

    /// Makes another tenant; answers a token that may do everything in it.
    ///
    /// # Panics
    /// When the program that makes it fails.
    pub fn another_tenant(&self) -> String {
        replica::init_admin(&self.database, &self.folder.path().join("control-plane"), "other")
    }

    /// Starts a replica that serves nodes alone. It has none of the others' settings, and so nothing that signs.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start_gateway(&self) -> Replica {
        Replica::start_gateway(self.replicas.len(), &self.database, &self.folder.path().join("control-plane")).await
    }

    /// Lets one more node join and run.
    ///
    /// # Panics
    /// When it does not join.
    pub async fn add_node(&mut self) -> &mut Node {
        let gateways: Vec<_> = self.replicas.iter().map(Replica::gateway_url).collect();
        self.add_node_at(&gateways).await
    }

    /// The same, and it knows these gateways alone.
    ///
    /// # Panics
    /// As [`Cluster::add_node`].
    pub async fn add_node_at(&mut self, gateways: &[String]) -> &mut Node {
        let name = format!("node-{}", self.nodes.len());
        let token = self.api.join_token(None).await;
        let mut node = Node::join(&self.folder.path().join(&name), &name, gateways, &token);
        node.start();
        self.nodes.push(node);
        self.nodes.last_mut().expect("it was just added")
    }
}

/// A port that nothing listens on. The system hands out others before it comes to this one again.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback has a free port");
    listener.local_addr().expect("it is bound").port()
}
