//! `nodes.setSpec`, `nodes.getSpec` and `reservations.*`.

use serde_json::{Value, json};

use super::{Api, with};
use crate::bus::Signal;

const GPU: &str = "GPU-51d00000-0000-4000-8000-000000000000";

async fn started() -> (Api, Value) {
    let api = Api::new().await;
    let node = api.fleet.node().await;
    let reference = json!({ "tenantId": api.tenant(), "nodeId": node.to_string() });
    (api, reference)
}

#[tokio::test]
async fn a_spec_is_set_shown_and_followed_by_the_next() {
    let (api, node) = started().await;
    let before = api.call("nodes.getSpec", node.clone()).await.ok();
    assert_eq!(before, json!({ "nodeId": node["nodeId"], "generation": 0, "appliedGeneration": 0 }));
    let mut signals = api.app.bus.subscribe();
    let instances = json!([{ "id": "vm-1", "passThrough": [GPU] }]);
    let wanted = json!({ "instances": instances, "host": { "hugePages1g": 16, "isolatedCpus": "2-5,8", "iommu": true },
                         "expectedGeneration": 0 });
    let set = api.call("nodes.setSpec", with(node.clone(), wanted.clone())).await.ok();
    assert_eq!(
        signals.try_recv().expect("a signal"),
        Signal::Spec { node: node["nodeId"].as_str().expect("text").parse().expect("an id") }
    );
    assert_eq!(
        set["document"],
        json!({ "generation": 1, "holds": [], "instances": instances, "host": wanted["host"] })
    );
    assert_eq!(api.call("nodes.getSpec", node.clone()).await.ok(), set);
    let again = api.call("nodes.setSpec", with(node.clone(), wanted)).await;
    assert_eq!((again.code(), &again.body["error"]["details"]["generation"]), ("CONFLICT", &json!(1)));
    let next = api.call("nodes.setSpec", node.clone()).await.ok();
    assert_eq!(next["document"], json!({ "generation": 2, "holds": [], "instances": [], "host": {} }));
}

#[tokio::test]
async fn what_is_wrong_with_a_spec_is_named() {
    let (api, node) = started().await;
    let mut table = String::new();
    for change in [
        json!({ "holds": [] }),
        json!({ "expectedGeneration": u64::MAX }),
        json!({ "instances": [{ "id": "" }] }),
        json!({ "instances": [{ "id": "a" }, { "id": "a" }] }),
        json!({ "instances": [{ "id": "a", "passThrough": ["0000:1b:00.0"] }] }),
        json!({ "instances": [{ "id": "a", "passThrough": [GPU] }, { "id": "b", "passThrough": [GPU] }] }),
        json!({ "instances": vec![json!({ "id": "a" }); 65] }),
        json!({ "host": { "isolatedCpus": "5-2" } }),
        json!({ "host": { "hugePages1g": 65_537 } }),
        json!({ "host": { "fans": "loud" } }),
    ] {
        let answer = api.call("nodes.setSpec", with(node.clone(), change)).await;
        let words = answer.words();
        table += &format!("{}\n", words.lines().next().unwrap_or_default().chars().take(240).collect::<String>());
    }
    for change in [
        json!({ "gpu": "0" }),
        json!({ "gpu": "GPU-" }),
        json!({ "gpu": GPU, "slot": 1_024 }),
        json!({ "gpu": GPU, "idempotencyKey": "" }),
        json!({ "gpu": GPU, "nodeId": "x" }),
    ] {
        let ask = with(with(node.clone(), json!({ "idempotencyKey": "k" })), change);
        table += &format!("{}\n", api.call("reservations.create", ask).await.words());
    }
    let ask = with(node.clone(), json!({ "state": "lost" }));
    table += &format!("{}\n", api.call("reservations.list", ask).await.words());
    let run = with(node, json!({ "kind": "diag.nvml", "idempotencyKey": "k", "minGeneration": 0 }));
    table += &format!("{}\n", api.call("commands.run", run).await.words());
    insta::assert_snapshot!(table);
}

#[tokio::test]
async fn a_gpu_is_reserved_found_again_listed_and_given_back() {
    let (api, node) = started().await;
    let ask = |gpu: &str, key: &str| with(node.clone(), json!({ "gpu": gpu, "idempotencyKey": key }));
    let made = api.call("reservations.create", ask(GPU, "1")).await.ok();
    assert_eq!((&made["state"], &made["generation"], &made["gpu"]), (&json!("requested"), &json!(1), &json!(GPU)));
    assert_eq!(api.call("reservations.create", ask(GPU, "1")).await.ok(), made);
    assert_eq!(api.call("reservations.create", ask("GPU-b", "1")).await.code(), "CONFLICT");
    let taken = api.call("reservations.create", ask(GPU, "2")).await;
    assert_eq!(taken.code(), "INVALID_STATE");
    assert_eq!(
        taken.body["error"]["details"],
        json!({ "reason": "gpu-reserved", "gpu": GPU, "reservationId": made["id"] })
    );
    let spec = api.call("nodes.getSpec", node.clone()).await.ok();
    assert_eq!(spec["document"]["holds"], json!([{ "allocation": made["id"], "gpu": GPU }]));

    // A spec that is set keeps what is held.
    api.call("nodes.setSpec", with(node.clone(), json!({ "host": { "iommu": true } }))).await.ok();
    let spec = api.call("nodes.getSpec", node.clone()).await.ok();
    assert_eq!((&spec["generation"], &spec["document"]["holds"][0]["gpu"]), (&json!(2), &json!(GPU)));

    let second = api.call("reservations.create", ask("GPU-b", "3")).await.ok();
    let list = |change: Value| with(node.clone(), change);
    let page = api.call("reservations.list", list(json!({ "limit": 1 }))).await.ok();
    let seen = [&page["items"][0]["id"], &second["id"]];
    let rest = api.call("reservations.list", list(json!({ "cursor": page["nextCursor"] }))).await.ok();
    assert_eq!((seen[0] == &made["id"] || seen[0] == seen[1], rest["items"].as_array().map(Vec::len)), (true, Some(1)));
    let reference = with(node.clone(), json!({ "reservationId": made["id"] }));
    let released = api.call("reservations.release", reference.clone()).await.ok();
    assert_eq!(released["state"], "released");
    assert_eq!(api.call("reservations.release", reference.clone()).await.ok()["releasedAt"], released["releasedAt"]);
    assert_eq!(api.call("reservations.get", reference).await.ok()["state"], "released");
    let live = api.call("reservations.list", list(json!({ "state": "requested" }))).await.ok();
    assert_eq!((live["items"].as_array().map(Vec::len), &live["items"][0]["id"]), (Some(1), &second["id"]));
    assert_eq!(api.call("nodes.getSpec", node.clone()).await.ok()["generation"], 4, "a second release makes none");
    api.call("reservations.create", ask(GPU, "4")).await.ok();
}

#[tokio::test]
async fn specs_and_reservations_take_a_grant_of_their_own() {
    let (api, node) = started().await;
    let made =
        api.call("reservations.create", with(node.clone(), json!({ "gpu": GPU, "idempotencyKey": "k" }))).await.ok();
    let of = with(node.clone(), json!({ "reservationId": made["id"] }));
    let resource = format!("compute-node/{}", node["nodeId"].as_str().expect("an id"));
    let mut table = String::new();
    for grants in [&[][..], &["compute:nodes:read"], &["compute:specs:write"], &["compute:reservations:write"]] {
        let grants: Vec<_> = grants.iter().map(|grant| (*grant, resource.as_str())).collect();
        let name = grants.first().map_or("nothing", |(grant, _)| grant);
        let token = api.token_with(name, &grants).await;
        for (method, ask) in [
            ("nodes.getSpec", node.clone()),
            ("nodes.setSpec", node.clone()),
            ("reservations.create", with(node.clone(), json!({ "gpu": "GPU-b", "idempotencyKey": "k" }))),
            ("reservations.get", of.clone()),
            ("reservations.list", node.clone()),
            ("reservations.release", of.clone()),
        ] {
            table += &format!("{name}: {method}: {}\n", api.call_as(&token, method, ask).await.code());
        }
    }
    insta::assert_snapshot!(table);
}
