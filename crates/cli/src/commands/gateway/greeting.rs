//! The text that a gateway prints when it starts to serve: its address, and the variables to set.

use super::agents::GatewayEndpoint;
use super::env::openai_path;
use crate::commands::gateway::registry;
use crate::config::duration;
use crate::config::{GatewaySettings, Upstream, url};
use crate::factory::provider;
use outlast_dialect::Dialect;
use outlast_kernel::text;
use std::net::SocketAddr;

/// Returns one short screen of text. Its first line is for programs.
pub(super) fn greeting(address: SocketAddr, settings: &GatewaySettings) -> String {
    let base = GatewayEndpoint {
        url: &registry::url(address),
        openai_path: openai_path(&settings.openai),
    };
    let to = |upstream: &Upstream, dialect| match upstream {
        Upstream::ProviderDefault => provider::default_base_url(dialect).to_owned(),
        Upstream::Url(text) => url::without_credentials(&url::without_query(text)),
        Upstream::Scripted(script) => format!("the scripted provider ({script})"),
    };
    let keys = match settings.use_accounts {
        true => "stored accounts",
        false => "the client's own",
    };
    let screen = format!(
        "listening on http://{address}\n\n  \
         Messages                    -> {anthropic}\n  \
         Chat Completions, Responses -> {openai}\n  \
         policy {policy}, keys: {keys}\n\n\
         Point an agent at it (`outlast gateway env claude|codex|opencode|aider|pi|openai` says more):\n  \
         export ANTHROPIC_BASE_URL={url}\n  \
         export OPENAI_BASE_URL={openai_url}\n\n\
         `outlast gateway status` shows what waits, `outlast gateway page` prints the address of a page that does, too.\n\
         Ctrl-C ends it when what is under way is done, after {drain} at most.\n",
        anthropic = to(&settings.anthropic, Dialect::Anthropic),
        openai = to(&settings.openai, Dialect::OpenaiChat),
        policy = settings.policy.name,
        url = base.url,
        openai_url = base.openai(),
        drain = duration::to_text(settings.limits.drain),
    );
    text::plain(&screen).into_owned()
}
