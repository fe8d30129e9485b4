//! Checks of the bearer token before it becomes part of a request.
//!
//! kube panics on an inline token that is no valid value of a header, and sends the token of a file as it is. client-go
//! (`NewCachedFileTokenSource` in client-go/transport/token_source.go) removes white space around the token of a file, and
//! refuses an empty one.

use std::io;
use std::path::Path;

use http::HeaderValue;
use kube::config::AuthInfo;
use secrecy::ExposeSecret;

use super::error;
use crate::bounded_read;
use crate::connection::LiveError;

/// Largest token file. Tokens have a few kilobytes.
const MAX_FILE_MIB: u64 = 1;

/// Checks the token that requests will carry. A token file with white space around the token becomes an inline token: a later
/// login reads the file again.
///
/// # Errors
/// The token has a character that no header may hold; the token file cannot be read, is empty or too long.
pub fn check(user: &mut AuthInfo) -> Result<(), LiveError> {
    check_provider(user)?;
    if let Some(token) = &user.token {
        return match is_header_value(token.expose_secret()) {
            true => Ok(()),
            false => Err(error::bad_token("the token")),
        };
    }
    let Some(path) = user.token_file.as_deref() else {
        return Ok(());
    };
    let name = format!("the token file {path}");
    let text = read(Path::new(path)).map_err(|failed| error::token_file(&name, &failed))?;
    let token = text.trim();
    if token.is_empty() {
        return Err(error::bad_token_file(&name, "is empty"));
    }
    if !is_header_value(token) {
        return Err(error::bad_token(&name));
    }
    if token.len() != text.len() {
        user.token = Some(token.to_owned().into());
    }
    Ok(())
}

/// Checks the tokens of an `auth-provider`, of which kube sends one as it is.
fn check_provider(user: &AuthInfo) -> Result<(), LiveError> {
    let configs = user.auth_provider.iter().map(|provider| &provider.config);
    let tokens = configs.flat_map(|config| [config.get("id-token"), config.get("access-token")]);
    match tokens.flatten().all(|token| is_header_value(token)) {
        true => Ok(()),
        false => Err(error::bad_token("a token of the auth-provider")),
    }
}

fn read(path: &Path) -> io::Result<String> {
    let bytes = bounded_read::file(path, MAX_FILE_MIB)?;
    String::from_utf8(bytes).map_err(io::Error::other)
}

fn is_header_value(token: &str) -> bool {
    HeaderValue::try_from(format!("Bearer {token}")).is_ok()
}
