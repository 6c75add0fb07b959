//! Ends of attested commands that their node did not sign so.
//!
//! **Invariant:** after each attempt the true result still settles its command.

use bc_proto::manifest::Lane;

use super::super::attest::{say, signed};
use super::*;

/// A session, and a command that it settled: telling that again changes nothing and is acknowledged.
struct Voice {
    link: Link,
    done: v1::Update,
}

impl Voice {
    /// What was said before has been written when this returns.
    async fn is_heard(&mut self) {
        say(&self.link, self.done.clone()).await;
        while !self.link.acknowledged().await.command_ids.contains(&self.done.command_id) {}
    }
}

struct Scene {
    table: Table,
    site: Site,
    replica: Replica,
    kind: Digest,
}

impl Scene {
    async fn voice(&self, machine: &Machine) -> Voice {
        let mut link = machine.open(&self.site.authority, &self.replica).await.expect("it may enter");
        let id = self.order(machine, &mut link).await;
        let done = signed(&machine.key, id, v1::Report::Succeeded);
        say(&link, done.clone()).await;
        assert_eq!(link.acknowledged().await.command_ids, [id.to_string()]);
        Voice { link, done }
    }

    /// A command that its node has.
    async fn order(&self, machine: &Machine, link: &mut Link) -> CommandId {
        let id = self.site.enqueue(machine.node(), self.kind).await;
        self.replica.tell_work(machine.node());
        assert_eq!(link.delivered().await.command_id, id.to_string());
        id
    }

    /// The true result counts, and its node stands for it.
    async fn counts(&self, machine: &Machine, link: &mut Link, id: CommandId) {
        say(link, signed(&machine.key, id, v1::Report::Failed)).await;
        assert_eq!(link.acknowledged().await.command_ids, [id.to_string()]);
        assert_eq!(self.site.state(id).await, "failed");
        assert_eq!(self.site.attested(id).await, Ok(machine.fingerprint));
    }
}

pub(super) async fn play() -> Table {
    let site = Site::new().await;
    let replica = site.replica("one").await;
    let kind = site.fleet.kind(Lane::Control, &["attested"]).await;
    let mut scene = Scene { table: Table::new("Results of attested kinds"), site, replica, kind };
    let lives = Lives::new(&scene.site, &scene.replica).await;
    let stranger = scene.site.machine(&scene.replica).await;
    let mut voice = scene.voice(&lives.present).await;
    let mut other = scene.voice(&stranger).await;
    reports(&mut scene, &lives, &stranger, &mut voice).await;
    replays(&mut scene, &lives, &mut voice).await;
    elsewhere(&mut scene, &lives, &stranger, (&mut voice, &mut other)).await;
    scene.table
}

/// What makes an attempt on a command.
type Forge<'a> = Box<dyn Fn(CommandId) -> v1::Update + Send + 'a>;

async fn reports(scene: &mut Scene, lives: &Lives, stranger: &Machine, voice: &mut Voice) {
    use v1::Report::{Cancelled, Failed, Rejected, Succeeded};
    let own = &lives.present.key;
    let attacker = SecretKey::from_seed([9; 32]);
    let of_done = voice.done.node_sig.clone();
    let cut = |update: v1::Update, length| v1::Update { node_sig: update.node_sig[..length].to_vec(), ..update };
    let end = |update: v1::Update, report: v1::Report| v1::Update { report: report.into(), ..update };
    let with = |update: v1::Update, node_sig| v1::Update { node_sig, ..update };
    let attempts: Vec<(&str, &str, Forge<'_>)> = vec![
        ("success, unsigned", "signature-missing", Box::new(|id| cut(signed(own, id, Succeeded), 0))),
        ("failure, unsigned", "signature-missing", Box::new(|id| cut(signed(own, id, Failed), 0))),
        ("a cancelled end, unsigned", "signature-missing", Box::new(|id| cut(signed(own, id, Cancelled), 0))),
        ("a rejection, unsigned", "signature-missing", Box::new(|id| cut(signed(own, id, Rejected), 0))),
        ("a signature that is cut short", "signature-size", Box::new(|id| cut(signed(own, id, Succeeded), 63))),
        (
            "a signature of a byte too many",
            "signature-size",
            Box::new(|id| {
                let update = signed(own, id, Succeeded);
                let node_sig = [&update.node_sig[..], &[0]].concat();
                with(update, node_sig)
            }),
        ),
        ("64 zero bytes", "signature-wrong", Box::new(|id| with(signed(own, id, Succeeded), vec![0; 64]))),
        ("the attacker's key", "signature-wrong", Box::new(|id| signed(&attacker, id, Succeeded))),
        ("another node's key", "signature-wrong", Box::new(|id| signed(&stranger.key, id, Succeeded))),
        (
            "the key of a revoked certificate",
            "signature-wrong",
            Box::new(|id| signed(&lives.revoked.key, id, Succeeded)),
        ),
        (
            "the key of the node's earlier life",
            "signature-wrong",
            Box::new(|id| signed(&lives.earlier.key, id, Succeeded)),
        ),
        (
            "the signature of another command's result",
            "signature-wrong",
            Box::new(|id| with(signed(own, id, Succeeded), of_done.clone())),
        ),
        (
            "a signed failure, told as success",
            "signature-wrong",
            Box::new(|id| end(signed(own, id, Failed), Succeeded)),
        ),
        (
            "a signed success, told as failure",
            "signature-wrong",
            Box::new(|id| end(signed(own, id, Succeeded), Failed)),
        ),
        (
            "a signed rejection, told as success",
            "signature-wrong",
            Box::new(|id| end(signed(own, id, Rejected), Succeeded)),
        ),
        (
            "another result under the signature",
            "signature-wrong",
            Box::new(|id| v1::Update { result: br#"{"n":2}"#.to_vec(), ..signed(own, id, Succeeded) }),
        ),
        (
            "the result with a space more",
            "signature-wrong",
            Box::new(|id| v1::Update { result: br#"{"n": 1}"#.to_vec(), ..signed(own, id, Succeeded) }),
        ),
        (
            "the result taken away",
            "signature-wrong",
            Box::new(|id| v1::Update { result: Vec::new(), ..signed(own, id, Succeeded) }),
        ),
    ];
    for (attempt, reason, forge) in attempts {
        let id = scene.order(&lives.present, &mut voice.link).await;
        let before = scene.site.rows().await;
        say(&voice.link, forge(id)).await;
        voice.is_heard().await;
        assert_eq!(scene.site.rows().await, before, "IT COUNTED: {attempt}");
        assert_eq!(scene.site.refusals(id).await, [reason], "{attempt}");
        scene.counts(&lives.present, &mut voice.link, id).await;
        scene.table.row(attempt, &format!("`{reason}`"), TOLD);
    }
}

/// Of commands that are over.
async fn replays(scene: &mut Scene, lives: &Lives, voice: &mut Voice) {
    let own = &lives.present.key;
    let id = scene.order(&lives.present, &mut voice.link).await;
    scene.counts(&lives.present, &mut voice.link, id).await;
    let attempts = [
        ("a settled command's result, told again", signed(own, id, v1::Report::Failed), None),
        (
            "another end of a settled command, under the attacker's key",
            signed(&SecretKey::from_seed([9; 32]), id, v1::Report::Succeeded),
            Some("signature-wrong"),
        ),
        (
            "another end of a settled command, which the node itself signed",
            signed(own, id, v1::Report::Succeeded),
            None,
        ),
    ];
    for (attempt, update, reason) in attempts {
        let told = scene.site.refusals(id).await.len();
        let before = scene.site.rows().await;
        say(&voice.link, update).await;
        voice.is_heard().await;
        assert_eq!(scene.site.rows().await, before, "IT COUNTED: {attempt}");
        let refusals = scene.site.refusals(id).await;
        assert_eq!(refusals.get(told).map(String::as_str), reason, "{attempt}");
        match reason {
            Some(reason) => scene.table.row(attempt, &format!("`{reason}`"), TOLD),
            None => scene.table.row(attempt, "nothing: it is acknowledged, and the first result stands", NOTHING),
        }
    }
}

/// On the wrong session.
async fn elsewhere(scene: &mut Scene, lives: &Lives, stranger: &Machine, voices: (&mut Voice, &mut Voice)) {
    let (voice, other) = voices;
    let attempts = [
        (
            "another node's command, signed with the session's own key",
            signed as fn(&SecretKey, _, _) -> _,
            &stranger.key,
        ),
        ("another node's command, under that node's true signature", signed, &lives.present.key),
    ];
    for (attempt, sign, key) in attempts {
        let id = scene.order(&lives.present, &mut voice.link).await;
        let before = scene.site.rows().await;
        say(&other.link, sign(key, id, v1::Report::Failed)).await;
        other.is_heard().await;
        assert_eq!(scene.site.rows().await, before, "IT COUNTED: {attempt}");
        assert_eq!(scene.site.refusals(id).await, [] as [&str; 0], "{attempt}");
        scene.counts(&lives.present, &mut voice.link, id).await;
        scene.table.row(attempt, "a session settles commands of its own node alone", NOTHING);
    }
    for (attempt, epoch) in [
        ("a true result in a frame of an older session", voice.link.epoch - 1),
        ("a true result in a frame of a session that is not yet", voice.link.epoch + 1),
        ("a true result in a frame of no session", 0),
    ] {
        let id = scene.order(&lives.present, &mut voice.link).await;
        let before = scene.site.rows().await;
        let update = signed(&lives.present.key, id, v1::Report::Failed);
        voice.link.say_of(epoch, from_node::Frame::Update(update)).await;
        voice.is_heard().await;
        assert_eq!(scene.site.rows().await, before, "IT COUNTED: {attempt}");
        scene.counts(&lives.present, &mut voice.link, id).await;
        scene.table.row(attempt, "frames of another epoch have no effect", DELAY);
    }
}
