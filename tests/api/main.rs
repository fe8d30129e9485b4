//! The cluster's API as a source, against a real HTTPS server: every failure ends in a stated completeness, never in a wrong
//! verdict or a hang.
#![cfg(feature = "kube")]

mod cases;
mod command;
mod errors;
mod lists;
mod living;
mod login;
mod memory;
mod narrow;
mod own;
mod pods;
mod proxy;
mod second_look;
mod sources;
mod watch;

use ctk_cluster::testing as shorthand;
use std::path::PathBuf;
use std::time::Duration;
use testkit::lab;

use ctk_cluster::connection::{ConnectionOptions, LiveError};
use ctk_cluster::live::load;
use ctk_cluster::read_scope::ReadScope;
use ctk_cluster::source::Loaded;
use serde_json::json;
use testkit::api_server::Objects;

/// Reads with a kubeconfig, as a listing does.
fn read(kubeconfig: PathBuf) -> Result<Loaded, LiveError> {
    load(&options(kubeconfig), ReadScope::default(), &[])
}

fn options(kubeconfig: PathBuf) -> ConnectionOptions {
    ConnectionOptions {
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
