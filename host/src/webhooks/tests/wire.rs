//! What is sent, and where it may go.

use rcgen::{CertificateParams, KeyPair};

use super::*;

/// A certificate for 127.0.0.1 that signs itself, and what shows it.
fn certified() -> (Vec<u8>, crate::tls::TlsAcceptor) {
    let key = KeyPair::generate().expect("a key");
    let certificate = CertificateParams::new(["127.0.0.1".to_owned()]).expect("a name").self_signed(&key);
    let pem = certificate.expect("a certificate").pem().into_bytes();
    let acceptor = crate::tls::acceptor(&pem, key.serialize_pem().as_bytes()).expect("a pair");
    (pem, acceptor)
}

#[tokio::test]
async fn the_reference_implementation_verifies_what_is_sent() {
    let stage = Stage::new().await;
    let receiver = Receiver::new(Behaviour::Status(204)).await;
    let (_, secret) = stage.webhook(&receiver.url, "node.*").await;
    let (_, other) = stage.webhook("http://127.0.0.1:1/", "nothing").await;
    let command = stage.event().await;
    // At the real time, which the verifier reads for itself.
    let module = Module::new(stage.fleet.pool.clone(), Bus::local(), World::real(), &stage.settings).expect("it fits");
    assert_eq!(module.pass().await.expect("a database"), 1);
    let got = receiver.got().remove(0);
    let verified = |secret: &Secret| {
        standardwebhooks::Webhook::new(&secret.shown()).expect("a secret").verify(got.body.as_bytes(), &got.headers)
    };
    verified(&secret).expect("it is signed");
    assert!(verified(&other).is_err());
    assert!(got.is_signed_by(&secret.shown()));
    assert!(got.id().starts_with("delivery_") && got.header("content-type") == "application/json");
    let body = got.json();
    let events = store::events::after(&mut *stage.fleet.db().await, Cursor::default(), 10).await.expect("a database");
    let event = events.into_iter().find(|it| it.topic == "node.command.queued").expect("it is there");
    let document = serde_json::to_value(crate::api::types::Event::from(event)).expect("JSON");
    assert_eq!(body["type"], "node.command.queued");
    assert_eq!(body["data"], document);
    assert_eq!(body["data"]["body"]["commandId"], command);
    assert_eq!(body["timestamp"], body["data"]["at"]);
}

#[tokio::test]
async fn while_a_secret_is_rotated_both_sign() {
    let stage = Stage::new().await;
    let receiver = Receiver::new(Behaviour::Status(200)).await;
    let (id, old) = stage.webhook(&receiver.url, "*").await;
    let new = Secret::new([9; 32]);
    let mut webhook = stage.find(id).await;
    let before = std::mem::replace(&mut webhook.secret, stage.settings.key.seal(id, &new, [1; 24]));
    webhook.previous = Some((before, at(100)));
    let mut tx = stage.fleet.pool.begin().await.expect("a transaction");
    stored::update(&mut tx, &webhook, Change::Plain).await.expect("a database");
    tx.commit().await.expect("a commit");
    stage.visible().await;
    stage.pass_time(99);
    assert!(stage.pass().await > 0);
    let first = receiver.got().remove(0);
    assert!(first.is_signed_by(&old.shown()) && first.is_signed_by(&new.shown()));
    stage.pass_time(1);
    stage.event().await;
    assert_eq!(stage.pass().await, 1);
    let last = receiver.got().pop().expect("one more");
    assert!(!last.is_signed_by(&old.shown()) && last.is_signed_by(&new.shown()));
}

#[tokio::test]
async fn only_a_certificate_that_holds_is_sent_to() {
    let mut stage = Stage::new().await;
    let (pem, acceptor) = certified();
    let receiver = Receiver::over(Behaviour::Status(200), Some(acceptor)).await;
    let (id, _) = stage.webhook(&receiver.url, "node.*").await;
    stage.event().await;
    stage.settings.ca_pem = Some(certified().0);
    assert_eq!(stage.pass().await, 1);
    let delivery = stage.only(id).await;
    assert_eq!((delivery.state, delivery.last_status), (Standing::Pending, None));
    assert!(delivery.last_answer.contains("certificate"), "{}", delivery.last_answer);
    assert!(!delivery.last_answer.contains("in-the-url"), "{}", delivery.last_answer);
    assert!(receiver.got().is_empty());
    stage.settings.ca_pem = Some(pem);
    stage.pass_time(10);
    assert_eq!(stage.pass().await, 1);
    assert_eq!(stage.only(id).await.state, Standing::Delivered);
}

#[tokio::test]
async fn what_the_operator_does_not_allow_is_not_reached_however_its_url_got_there() {
    let mut stage = Stage::new().await;
    stage.settings.allow = Allow::default();
    let receiver = Receiver::new(Behaviour::Status(200)).await;
    let port = receiver.url.split(':').nth(2).and_then(|rest| rest.split('/').next()).expect("a port").to_owned();
    let mut ids = Vec::new();
    for url in [
        receiver.url.clone(),
        format!("https://127.0.0.1:{port}/"),
        format!("https://localhost:{port}/"),
        format!("https://[::ffff:127.0.0.1]:{port}/"),
        "https://169.254.169.254/latest/meta-data".to_owned(),
    ] {
        ids.push(stage.webhook(&url, "node.*").await.0);
    }
    stage.event().await;
    assert_eq!(stage.pass().await, ids.len());
    for id in ids {
        let delivery = stage.only(id).await;
        assert_eq!((delivery.state, delivery.last_status), (Standing::Pending, None));
        assert!(delivery.last_answer.starts_with("nothing was sent"), "{}", delivery.last_answer);
    }
    assert!(receiver.got().is_empty());
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let stage = Stage::new().await;
    let inside = Receiver::new(Behaviour::Status(200)).await;
    let receiver = Receiver::new(Behaviour::Redirect(inside.url.clone())).await;
    let (id, _) = stage.webhook(&receiver.url, "node.*").await;
    stage.event().await;
    assert_eq!(stage.pass().await, 1);
    let delivery = stage.only(id).await;
    assert_eq!((delivery.state, delivery.last_status), (Standing::Pending, Some(307)));
    assert!(inside.got().is_empty());
}

#[tokio::test]
async fn of_an_answer_without_end_the_beginning_is_read() {
    let stage = Stage::new().await;
    let receiver = Receiver::new(Behaviour::Endless).await;
    let (id, _) = stage.webhook(&receiver.url, "node.*").await;
    stage.event().await;
    assert_eq!(stage.pass().await, 1);
    let delivery = stage.only(id).await;
    assert_eq!((delivery.state, delivery.last_status), (Standing::Delivered, Some(200)));
    assert_eq!(delivery.last_answer, "x".repeat(1024));
}

#[tokio::test]
async fn with_another_key_nothing_is_sent_and_people_are_told() {
    let mut stage = Stage::new().await;
    let receiver = Receiver::new(Behaviour::Status(200)).await;
    let (id, _) = stage.webhook(&receiver.url, "node.*").await;
    stage.event().await;
    stage.settings.key = SealingKey::new([6; 32]);
    assert_eq!(stage.pass().await, 1);
    let delivery = stage.only(id).await;
    assert!(delivery.last_answer.contains("rotateSecret"), "{}", delivery.last_answer);
    assert!(receiver.got().is_empty());
}
