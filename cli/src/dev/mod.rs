//! dev
use clap::Args;
/// x
#[derive(Debug, Args)]
pub struct Dev {}
impl Dev {
    /// x
    pub fn execute(self) -> anyhow::Result<std::process::ExitCode> { anyhow::bail!("x") }
}
