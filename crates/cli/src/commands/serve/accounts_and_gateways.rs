//! Accounts, gates and the gateways of this machine, as a server reports them.

use crate::commands::accounts;
use crate::commands::gateway::client::{self, ControlError, ControlRequest};
use crate::commands::serve::session_factory::ServeSessionFactory;
use crate::config;
use crate::platform::home;
use outlast_engine::BoxFuture;
use outlast_gateway::control::{Account, Gate};
use outlast_gateway::problem::Problem;
use outlast_kernel::Timestamp;
use outlast_serve::http::{GatewayRequest, HostServices};
use serde_json::Value;

impl ServeSessionFactory {
    async fn ask(&self, port: u16, question: GatewayRequest) -> Result<Value, Problem> {
        let home = home::path();
        let unavailable =
            |error: &dyn std::fmt::Display| Problem::unavailable("unavailable", error.to_string());
        let home = home.map_err(|error| unavailable(&error))?;
        let request = match &question {
            GatewayRequest::RequestLog(after) => ControlRequest::RequestLog(*after),
            GatewayRequest::RetryNow(id) => ControlRequest::RetryNow(id.as_deref()),
            GatewayRequest::Cancel(id) => ControlRequest::Cancel(id),
        };
        let answered = client::send_to_port(&home, port, request).await;
        answered.map_err(|error| match &error {
            ControlError::NoGateway(_) | ControlError::Refused { status: 404, .. } => {
                Problem::unknown(error.to_string())
            }
            _ => unavailable(&error),
        })
    }

    /// Returns the gates at which calls fail.
    fn gates(&self, now: Timestamp) -> Vec<Gate> {
        let failing = self.shared_host().shared_state().failing_gates();
        failing
            .into_iter()
            .map(|gate| Gate::new(gate, now))
            .collect()
    }
}

impl HostServices for ServeSessionFactory {
    fn provider_state(&self) -> Result<(Vec<Account>, Vec<Gate>), String> {
        let settings = config::load_quietly(
            self.working_folder(),
            &self.shared_host().typed().overrides(),
        );
        let settings = settings.map_err(|error| crate::platform::exit::error_chain(&error))?;
        let (blocks, now) = (self.shared_host().shared_state().blocks(), self.now());
        let accounts = accounts::account_statuses(&settings, &blocks, now);
        Ok((accounts, self.gates(now)))
    }

    fn gateways(&self) -> BoxFuture<'_, Vec<Value>> {
        Box::pin(async {
            match home::path() {
                Ok(home) => client::gateways(&home).await,
                Err(_) => Vec::new(),
            }
        })
    }

    fn send_to_gateway(
        &self,
        port: u16,
        question: GatewayRequest,
    ) -> BoxFuture<'_, Result<Value, Problem>> {
        Box::pin(self.ask(port, question))
    }
}
