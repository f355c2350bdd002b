//! What one agent may do, and how much of it may be used.

use core::time::Duration;

use super::config::Quota;
use super::restart::RestartPolicy;
use crate::error::{ConfigError, require};
use crate::manifest::Manifest;

ubos_common::config! {
    /// What one agent may do, and how much of it may be used, beside the settings of the router: both bind.
    ///
    /// | setting | default |
    /// |---|---|
    /// | `quota` | no bound |
    /// | `restart` | that of the router |
    /// | `call_timeout` | no bound |
    /// | `permissions` | none of its own |
    ///
    /// That of a manifest has the quota and the time of a call that stand in it, and all the permissions that it asks for: who
    /// takes it approves them.
    ///
    /// ```
    /// use opensentience_wire::Manifest;
    /// use opensentience_wire::role::router::AgentPolicy;
    ///
    /// let text = br#"{"id": "com.example.a", "entrypoint": {"type": "command", "value": "bin/a"},
    ///     "permissions": ["tool:invoke:com.example.b/*"], "execution_limits": {"max_tool_call_duration": "30s"}}"#;
    /// let policy = AgentPolicy::from(&Manifest::decode(text)?);
    /// # drop(policy);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    AgentPolicy {
        /// Sets how much of it may be used.
        with_quota: quota: Quota = Quota::default(),
    }
    into {
        /// Sets whether it is launched again.
        with_restart: restart: Option<RestartPolicy> = None,
        /// Sets the longest time that a call may take, from the call on: one that asks for more, or for no end, gets this.
        with_call_timeout: call_timeout: Option<Duration> = None,
    }
    also {
        permissions: Vec<String> = Vec::new(),
        manifest_quota: Quota = Quota::default(),
        manifest_timeout: Option<Duration> = None,
    }
}

impl AgentPolicy {
    /// Binds it to a manifest beside its own settings: the quota and the time of a call that stand there bind, too, and it is
    /// permitted all that the manifest asks for.
    #[must_use]
    pub fn with_manifest(mut self, manifest: &Manifest) -> Self {
        self.manifest_quota = manifest.quota();
        self.manifest_timeout = Some(manifest.call_timeout());
        let permissions = manifest.permissions.iter();
        permissions.fold(self, |policy, permission| {
            policy.with_permission(permission.trim())
        })
    }

    /// The longest time that a call may take.
    pub(super) fn longest_call(&self) -> Option<Duration> {
        self.call_timeout
            .into_iter()
            .chain(self.manifest_timeout)
            .min()
    }

    /// Permits it, where it is the caller, the tools that a permission names: `tool:invoke:` and a tool id in which `*` stands
    /// for any characters.
    #[must_use]
    pub fn with_permission(mut self, permission: impl Into<String>) -> Self {
        self.permissions.push(permission.into());
        self
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.quota.check("quota")?;
        self.manifest_quota.check("quota")?;
        let longest = self.longest_call();
        require(
            longest.is_none_or(|span| !span.is_zero()),
            "call_timeout",
            longest,
            "a call needs some time",
        )
    }

    /// Whether it may use a tool.
    pub(super) fn permits(&self, tool_id: &str) -> bool {
        let permits = |grant: &String| crate::role::core::permits(grant, tool_id);
        self.permissions.iter().any(permits)
    }
}

impl From<&Manifest> for AgentPolicy {
    fn from(manifest: &Manifest) -> Self {
        Self::default().with_manifest(manifest)
    }
}
