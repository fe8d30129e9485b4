use super::ls::LsArgs;
use crate::error::{CommandError, Status};
use crate::netns::Netns;
pub fn run(_args: &LsArgs, _netns: &Netns) -> Result<Status, CommandError> {
    Err(CommandError::usage("not yet"))
}
