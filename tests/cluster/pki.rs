//! Certificates of the control plane, and the kubeconfigs made of them.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::network::MASTER;

/// The folder of keys, certificates and kubeconfigs.
pub struct Pki(PathBuf);

impl Pki {
    /// Creates a CA, its certificates, the key of service account tokens, and kubeconfigs of `admin` and `kube-proxy`.
    pub fn make(folder: &Path) -> Self {
        fs::create_dir_all(folder).unwrap();
        let pki = Pki(folder.to_owned());
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, "ca");
        let key = KeyPair::generate().unwrap();
        pki.write("ca.crt", &params.self_signed(&key).unwrap().pem());
        let issuer = Issuer::new(params, key);
        let hosts = ["kubernetes.default.svc", "127.0.0.1", MASTER, "10.96.0.1"];
        pki.sign(&issuer, "apiserver", None, &hosts);
        pki.sign(&issuer, "admin", Some("system:masters"), &[]);
        pki.sign(&issuer, "system:kube-proxy", None, &[]);
        let tokens = KeyPair::generate().unwrap();
        pki.write("sa.key", &tokens.serialize_pem());
        pki.write("sa.pub", &tokens.public_key_pem());
        for user in ["admin", "system:kube-proxy"] {
            let certificate = pki.path(&format!("{user}.crt"));
            let key = pki.path(&format!("{user}.key"));
            let login = format!("client-certificate: {certificate}, client-key: {key}");
            pki.kubeconfig(user, &login);
        }
        pki
    }

    pub fn path(&self, name: &str) -> String {
        let path = self.0.join(name);
        path.to_str().expect("ASCII").to_owned()
    }

    /// Writes a kubeconfig with this login. Returns the path.
    pub fn kubeconfig(&self, name: &str, login: &str) -> String {
        let text = format!(
            "apiVersion: v1
kind: Config
clusters: [{{name: test, cluster: {{server: \"https://{MASTER}:6443\", certificate-authority: {}}}}}]
users: [{{name: user, user: {{{login}}}}}]
contexts: [{{name: test, context: {{cluster: test, user: user}}}}]
current-context: test
",
            self.path("ca.crt")
        );
        let name = format!("{name}.kubeconfig");
        self.write(&name, &text);
        self.path(&name)
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
    }

    fn sign(&self, issuer: &Issuer<'_, KeyPair>, name: &str, group: Option<&str>, hosts: &[&str]) {
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        let usage = match hosts.is_empty() {
            true => ExtendedKeyUsagePurpose::ClientAuth,
            false => ExtendedKeyUsagePurpose::ServerAuth,
        };
        let mut params = CertificateParams::new(hosts).unwrap();
        params.extended_key_usages = vec![usage];
        params.distinguished_name.push(DnType::CommonName, name);
        if let Some(group) = group {
            let organization = DnType::OrganizationName;
            params.distinguished_name.push(organization, group);
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, issuer).unwrap();
        self.write(&format!("{name}.crt"), &certificate.pem());
        self.write(&format!("{name}.key"), &key.serialize_pem());
    }
}
