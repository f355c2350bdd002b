//! How much of a quota was used, and why a call is refused.

use core::time::Duration;
use std::collections::BTreeMap;

use ubos_common::time::Mono;

use super::config::Quota;
use crate::error::ErrorCode;
use crate::role::rate::Bucket;

/// Why a call is refused. Nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// No agent that is connected offers the tool, and none is expected back that did.
    #[error("no such tool: {tool:?}")]
    ToolNotFound {
        /// The tool that was asked for; the beginning of a long name.
        tool: Box<str>,
    },
    /// The agent of the tool is gone and may be launched again: try later.
    #[error("the agent is not connected at the moment")]
    Unavailable,
    /// The caller may not use the tool: it lacks this permission.
    #[error("the caller lacks {permission}")]
    PermissionDenied {
        /// The permission that would do.
        permission: String,
    },
    /// The tool wants a directive and the request names no cause.
    #[error("the tool needs a directive: set causation_id")]
    DirectiveRequired,
    /// The agent is unhealthy.
    #[error("the agent is unhealthy")]
    Unhealthy,
    /// The input is larger than the tool's or the agent's quota.
    #[error("the input has {bytes} bytes, at most {limit} are allowed")]
    InputTooLarge {
        /// Bytes of the input.
        bytes: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// Too many calls in a span of time.
    #[error("the quota allows no more calls now; retry in {retry_after:?}")]
    RateExceeded {
        /// When there is room again.
        retry_after: Duration,
    },
    /// Too many calls at once.
    #[error("the quota allows {limit} calls at once")]
    ConcurrencyExceeded {
        /// Calls allowed at once.
        limit: usize,
    },
    /// The idempotency key was used with another input.
    #[error("the idempotency key was used with another input")]
    Conflict,
    /// As many calls run as the router takes.
    #[error("too many calls at once")]
    Busy,
    /// The router is shutting down, or gone.
    #[error("the router takes no more calls")]
    Closing,
}

/// The code under which a caller sees the refusal.
impl From<&Refused> for ErrorCode {
    fn from(refused: &Refused) -> Self {
        match refused {
            Refused::ToolNotFound { .. } => Self::ToolNotFound,
            Refused::PermissionDenied { .. } => Self::ToolPermissionDenied,
            Refused::DirectiveRequired => Self::ToolDirectiveRequired,
            Refused::Unhealthy => Self::AgentUnhealthy,
            Refused::InputTooLarge { .. } => Self::ToolInvalidInput,
            Refused::RateExceeded { .. } => Self::RateExceeded,
            Refused::ConcurrencyExceeded { .. } => Self::ConcurrencyExceeded,
            Refused::Conflict => Self::ToolConflict,
            Refused::Busy => Self::ToolBusy,
            Refused::Unavailable | Refused::Closing => Self::AgentDisconnected,
        }
    }
}

/// What was used of the quotas of agents, or of tools. It outlives registrations and connections: whoever registers again has
/// no new quota.
#[derive(Debug, Default)]
pub(super) struct Meters {
    used: BTreeMap<Box<str>, Meter>,
    /// The number of meters at which those that say nothing any more are removed.
    prune_at: usize,
}

impl Meters {
    /// Whether one more call is within a quota.
    pub(super) fn check(&self, now: Mono, name: &str, quota: &Quota) -> Result<(), Refused> {
        self.used
            .get(name)
            .map_or(Ok(()), |meter| meter.check(now, quota))
    }

    pub(super) fn take(&mut self, now: Mono, name: &str, quota: &Quota) {
        if self.used.len() >= self.prune_at {
            self.used
                .retain(|_, meter| meter.running > 0 || !meter.bucket.is_full(now));
            self.prune_at = self.used.len().saturating_mul(2).max(FEW_METERS);
        }
        self.used.entry(name.into()).or_default().take(now, quota);
    }

    pub(super) fn give_back(&mut self, name: &str) {
        if let Some(meter) = self.used.get_mut(name) {
            meter.running = meter.running.saturating_sub(1);
        }
    }
}

/// As many meters are always kept.
const FEW_METERS: usize = 256;

/// What was used of a quota.
#[derive(Clone, Debug, Default)]
struct Meter {
    running: usize,
    bucket: Bucket,
}

impl Meter {
    fn check(&self, now: Mono, quota: &Quota) -> Result<(), Refused> {
        if let Some(limit) = quota.concurrent.filter(|limit| self.running >= *limit) {
            return Err(Refused::ConcurrencyExceeded { limit });
        }
        let held = quota
            .rate
            .map_or(Ok(()), |rate| self.bucket.check(now, rate));
        held.map_err(|retry_after| Refused::RateExceeded { retry_after })
    }

    fn take(&mut self, now: Mono, quota: &Quota) {
        self.running += 1;
        if let Some(rate) = quota.rate {
            self.bucket.take(now, rate);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_that_is_used_outlives_many_others() {
        let minute = Duration::from_secs(60);
        let (rated, single) = (
            Quota::default().with_rate(1, minute),
            Quota::default().with_concurrent(1),
        );
        let (mut meters, now) = (Meters::default(), Mono::ZERO);
        meters.take(now, "single", &single);
        meters.take(now, "rated", &rated);
        meters.give_back("rated");
        for n in 0..3 * FEW_METERS {
            let name = n.to_string();
            meters.take(now, &name, &single);
            meters.give_back(&name);
        }
        let full = Refused::ConcurrencyExceeded { limit: 1 };
        assert_eq!(meters.check(now, "single", &single), Err(full));
        let late = Refused::RateExceeded {
            retry_after: minute,
        };
        assert_eq!(meters.check(now, "rated", &rated), Err(late));
        assert!(meters.used.len() <= FEW_METERS, "{}", meters.used.len());
    }
}
