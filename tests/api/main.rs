//! The cluster's API as a source, against a real HTTPS server: every failure ends in a stated completeness, never in a wrong
//! verdict or a hang.
#![cfg(feature = "kube")]

mod cases;
#[path = "../watch/child.rs"]
mod child;
mod command;
mod errors;
#[path = "../../src/verdict/cases/table.rs"]
mod incidents;
#[path = "../lab/mod.rs"]
mod lab;
mod lists;
mod living;
mod login;
mod memory;
#[path = "../mixed/mod.rs"]
mod mixed;
mod narrow;
mod own;
mod pods;
#[path = "../private_netns/mod.rs"]
mod private_netns;
mod proxy;
#[path = "../rows/mod.rs"]
mod rows;
mod second_look;
mod server;
#[allow(dead_code)]
#[path = "../../src/cluster/testing/shorthand.rs"]
mod shorthand;
mod sources;
#[path = "../tools/mod.rs"]
mod tools;
mod watch;

use std::path::PathBuf;
use std::time::Duration;

use ctk::cluster::live::{LiveError, Options, load};
use ctk::cluster::source::Loaded;
use ctk::cluster::wanted::Wanted;
use serde_json::json;
use server::Objects;

/// Reads with a kubeconfig, as a listing does.
fn read(kubeconfig: PathBuf) -> Result<Loaded, LiveError> {
    load(&options(kubeconfig), Wanted::default(), &[])
}

fn options(kubeconfig: PathBuf) -> Options {
    Options {
        kubeconfig: Some(kubeconfig),
        context: None,
        connect_limit: Duration::from_secs(2),
        limit: Duration::from_secs(15),
        consistent: false,
        may_ask: true,
    }
}

/// A small cluster with all that matters, a ServiceCIDR among it.
fn objects() -> Objects {
    let mut objects = lab::cluster_objects(&lab::BACKENDS);
    objects.push(json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": ["10.96.0.0/12"]},
    }));
    Objects(objects)
}
