//! Choice of the cluster and the user, by the rules of kubectl.

use std::ffi::OsStr;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Instant;

use http::Uri;
use ipnet::IpNet;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use super::reach::Peer;
use super::{error, plugin, token};
use crate::bounded_read;
use crate::connection::{ConnectionOptions, LiveError, no_config};

/// Upper bound of a kubeconfig.
const MAX_KUBECONFIG_MIB: u64 = 16;

/// Client, with the facts about how it was made.
#[derive(Clone)]
pub struct Connected {
    pub client: Client,
    /// Scheme, host and port of the server, for messages.
    pub url: String,
    pub peer: Peer,
    /// An exec plugin supplied the credentials.
    pub by_plugin: bool,
}

/// Makes a client. The login may take until `until`.
pub async fn client(options: &ConnectionOptions, until: Instant) -> Result<Connected, LiveError> {
    let mut config = config(options).await?;
    config.connect_timeout = Some(options.connect_limit);
    // Retries are decided by the caller, which knows the remaining time.
    config.default_retry = false;
    add_scheme(&mut config)?;
    let url = shown_url(&config.cluster_url);
    tracing::info!(%url, proxy = config.proxy_url.is_some(), "API server");
    let by_plugin = config.auth_info.exec.is_some();
    plugin::log_in(&mut config.auth_info, options.may_ask, until)?;
    token::check(&mut config.auth_info)?;
    let peer = Peer::of(&config, options.connect_limit);
    let client = Client::try_from(config);
    let client = client.map_err(|failed| error::not_built(&failed))?;
    Ok(Connected {
        client,
        url,
        peer,
        by_plugin,
    })
}

/// Completes a server without a scheme as client-go does (`DefaultServerURL` in client-go/rest/url_utils.go): https where the
/// kubeconfig has TLS settings, else http. kube panics without a scheme.
fn add_scheme(config: &mut Config) -> Result<(), LiveError> {
    if config.cluster_url.scheme().is_some() {
        return Ok(());
    }
    let user = &config.auth_info;
    let has_tls = config.root_cert.is_some()
        || config.accept_invalid_certs
        || user.client_certificate.is_some()
        || user.client_certificate_data.is_some();
    let scheme = if has_tls { "https" } else { "http" };
    let url = format!("{scheme}://{}", config.cluster_url).parse();
    config.cluster_url = url.map_err(|_| error::bad_server(&config.cluster_url))?;
    Ok(())
}

/// Scheme, host and port. The user information of a URL may hold a password.
fn shown_url(url: &Uri) -> String {
    let port = url
        .port()
        .map_or_else(String::new, |port| format!(":{port}"));
    format!(
        "{}://{}{port}",
        url.scheme_str().unwrap_or("https"),
        url.host().unwrap_or_default()
    )
}

async fn config(options: &ConnectionOptions) -> Result<Config, LiveError> {
    let Some(kubeconfig) = kubeconfig(options)? else {
        return in_cluster();
    };
    let chosen = KubeConfigOptions {
        context: options.context.clone(),
        ..KubeConfigOptions::default()
    };
    let own_proxy = has_own_proxy(&kubeconfig, options.context.as_deref());
    match Config::from_custom_kubeconfig(kubeconfig, &chosen).await {
        Ok(mut config) => {
            if !own_proxy && is_direct(&config) {
                config.proxy_url = None;
            }
            Ok(config)
        }
        // In a pod, kubectl falls back to the service account when the kubeconfig selects no context.
        Err(KubeconfigError::CurrentContextNotSet) if is_pod() => in_cluster(),
        Err(failed) => Err(error::kubeconfig(&failed)),
    }
}

fn in_cluster() -> Result<Config, LiveError> {
    if !is_pod() {
        return Err(no_config());
    }
    Config::incluster().map_err(|failed| error::in_cluster(&failed))
}

fn is_pod() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

/// Returns the merged kubeconfig, or `None` without one. A file named by a flag must exist; a file in `KUBECONFIG` need not
/// (client-go, `ClientConfigLoadingRules`).
fn kubeconfig(options: &ConnectionOptions) -> Result<Option<Kubeconfig>, LiveError> {
    let merged = match &options.kubeconfig {
        Some(path) => read(path).map(Some),
        None => {
            let existing = paths().into_iter().filter(|path| path.exists());
            existing.into_iter().try_fold(None, |merged, path| {
                let next = read(&path)?;
                Ok(Some(match merged {
                    None => next,
                    Some(merged) => Kubeconfig::merge(merged, next)?,
                }))
            })
        }
    };
    let merged = merged.map_err(|failed: KubeconfigError| error::kubeconfig(&failed))?;
    if merged.is_none() && options.context.is_some() {
        return Err(no_config());
    }
    Ok(merged)
}

/// Reads a kubeconfig of at most [`MAX_KUBECONFIG_MIB`]. Relative paths in it are relative to its folder, if it is a file and no
/// pipe.
fn read(path: &PathBuf) -> Result<Kubeconfig, KubeconfigError> {
    let failed = |error| KubeconfigError::ReadConfig(error, path.clone());
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if metadata.is_file() && metadata.len() <= MAX_KUBECONFIG_MIB << 20 {
        return Kubeconfig::read_from(path);
    }
    let bytes = bounded_read::file(path, MAX_KUBECONFIG_MIB).map_err(failed)?;
    let text = String::from_utf8(bytes).map_err(|error| failed(std::io::Error::other(error)))?;
    Kubeconfig::from_yaml(&text)
}

fn paths() -> Vec<PathBuf> {
    let listed = std::env::var_os("KUBECONFIG").unwrap_or_default();
    let listed: Vec<PathBuf> = std::env::split_paths(&listed)
        .filter(|path| path.as_os_str() != OsStr::new(""))
        .collect();
    if !listed.is_empty() {
        return listed;
    }
    let home = std::env::var_os("HOME").map(PathBuf::from);
    home.into_iter()
        .map(|home| home.join(".kube/config"))
        .collect()
}

/// Reports whether the cluster of the context names its own proxy, to which `NO_PROXY` does not apply.
fn has_own_proxy(kubeconfig: &Kubeconfig, context: Option<&str>) -> bool {
    let context = context.or(kubeconfig.current_context.as_deref());
    let named = |name: &str| context == Some(name);
    let context = kubeconfig.contexts.iter().find(|c| named(&c.name));
    let cluster = context.and_then(|c| Some(c.context.as_ref()?.cluster.as_str()));
    let cluster = kubeconfig
        .clusters
        .iter()
        .find(|c| Some(c.name.as_str()) == cluster);
    let proxy = cluster.and_then(|c| c.cluster.as_ref()?.proxy_url.as_deref());
    proxy.is_some_and(|proxy| !proxy.is_empty())
}

fn is_direct(config: &Config) -> bool {
    let list = ["NO_PROXY", "no_proxy"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|list| !list.is_empty()));
    let host = config.cluster_url.host().unwrap_or_default();
    list.is_some_and(|list| without_proxy(host, &list))
}

/// Reports whether `NO_PROXY` excludes a host: `*`, a name (with its subdomains), an address, or a network. Follows httpproxy of
/// Go, which kubectl uses; ports are ignored.
fn without_proxy(host: &str, list: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let address: Option<IpAddr> = host.parse().ok();
    list.split(',').map(str::trim).any(|entry| {
        let entry = entry.trim_start_matches('.');
        if entry == "*" {
            return true;
        }
        match (address, entry.parse::<IpNet>(), entry.parse::<IpAddr>()) {
            (Some(address), Ok(network), _) => network.contains(&address),
            (Some(address), _, Ok(one)) => address == one,
            (Some(_), ..) => false,
            (None, ..) => {
                let below = host.strip_suffix(entry);
                !entry.is_empty() && below.is_some_and(|b| b.is_empty() || b.ends_with('.'))
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_proxy_makes_the_connection_to_the_api_server_direct() {
        for (host, list, direct) in [
            ("10.0.0.1", "10.0.0.0/8", true),
            ("10.0.0.1", "192.168.0.0/16, 10.0.0.1", true),
            ("11.0.0.1", "10.0.0.0/8", false),
            ("[fd00::1]", "fd00::/8", true),
            ("api.example.org", "example.org", true),
            ("api.example.org", ".example.org", true),
            ("badexample.org", "example.org", false),
            ("api.example.org", "*", true),
            ("api.example.org", "", false),
        ] {
            assert_eq!(without_proxy(host, list), direct, "{host} in {list:?}");
        }
    }
}
