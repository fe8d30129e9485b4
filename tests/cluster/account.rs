//! Service account with the rights that ctk needs, and the removal and return of its access.

use std::time::Duration;

use http::Method;
use serde_json::json;

use crate::api::{Api, SERVICES};
use crate::plane::Plane;
use crate::process::wait;

const NAMESPACE: &str = "ctk";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const ACCOUNTS: &str = "/api/v1/namespaces/ctk/serviceaccounts";
const NAME: &str = "reader";

pub struct Account {
    api: Api,
    token: String,
    /// Kubeconfig that names the token's file, as those of pods do.
    pub kubeconfig: String,
}

impl Account {
    pub fn make(plane: &Plane) -> Self {
        let api = Api::new(&plane.admin());
        api.namespace(NAMESPACE);
        let rule = |group: &str, resources: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": ["list", "watch"]});
        let rules = [
            rule("", &["services", "pods", "nodes"]),
            rule("discovery.k8s.io", &["endpointslices"]),
            rule("networking.k8s.io", &["servicecidrs"]),
        ];
        api.ensure(ROLES, &json!({"metadata": {"name": NAME}, "rules": rules}));
        let token = plane.pki.path("token");
        let account = Account {
            api,
            token: token.clone(),
            kubeconfig: plane.pki.kubeconfig(NAME, &format!("tokenFile: {token}")),
        };
        account.create();
        account.grant();
        account
    }

    /// Binds the role, which allows the reads.
    pub fn grant(&self) {
        let subject = json!({"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE});
        let role =
            json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME});
        let binding = json!({"metadata": {"name": NAME}, "roleRef": role, "subjects": [subject]});
        self.api.ensure(BINDINGS, &binding);
    }

    /// Removes the rights: every request of the account is answered 403.
    pub fn revoke(&self) {
        self.api.delete(&format!("{BINDINGS}/{NAME}"));
    }

    /// Creates the account where it is missing, and writes a new token into the file.
    pub fn create(&self) {
        self.api
            .ensure(ACCOUNTS, &json!({"metadata": {"name": NAME}}));
        let path = format!("{ACCOUNTS}/{NAME}/token");
        let request = json!({"spec": {"expirationSeconds": 3600}});
        let token = self.api.create(&path, &request);
        let token = token["status"]["token"].as_str().expect("a token");
        std::fs::write(&self.token, token).unwrap();
    }

    /// Deletes the account and thereby its tokens: every request is answered 401.
    pub fn delete(&self) {
        self.api.delete(&format!("{ACCOUNTS}/{NAME}"));
    }

    /// Waits until the server answers the account with this status.
    pub fn wait_until_refused(&self, status: u16) {
        let reader = Api::new(&self.kubeconfig);
        wait(Duration::from_secs(30), "the account is refused", || {
            let answer = reader.try_send(&Method::GET, SERVICES, "application/json", None);
            answer.is_err_and(|refused| refused.status == status)
        });
    }
}
