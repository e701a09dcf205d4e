//! The way out, of both families side by side: a gateway that is silent in one takes no time from the other.
//!
//! Where both answered before a change, both must answer after it; otherwise one is enough, so that a node may go from one
//! family to the other.

use std::net::IpAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::icmp;
use super::route::{Gateway, gateways};

/// How long an echo is waited for where echoes may be filtered.
const ECHO: Duration = Duration::from_millis(300);

/// Both ways, and what is known of them.
#[derive(Debug, Default)]
pub struct Ways {
    four: Way,
    six: Way,
    /// Whether both answered when they were asked for the first time.
    both: OnceLock<bool>,
}

#[derive(Debug, Default)]
struct Way {
    /// Whether it ever answered an echo: if so, nothing less counts afterwards.
    echoes: AtomicBool,
}

impl Ways {
    /// Whether enough of them answer now.
    pub async fn answer(&self) -> bool {
        let all = gateways();
        let of = |six: bool| all.iter().find(|gateway| matches!(gateway.address, IpAddr::V6(_)) == six);
        let (four, six) = futures::future::join(self.four.answers(of(false)), self.six.answers(of(true))).await;
        self.are_enough(four, six)
    }

    fn are_enough(&self, four: bool, six: bool) -> bool {
        // A first time without any answer says nothing about what there is.
        if (four || six) && self.both.get().is_none() {
            let _ = self.both.set(four && six);
        }
        if self.both.get() == Some(&true) { four && six } else { four || six }
    }
}

impl Way {
    /// An echo, or, where echoes are filtered, that it resolves as a neighbour. A gateway that resolves and no longer answers
    /// does not know the way back to us.
    async fn answers(&self, gateway: Option<&Gateway>) -> bool {
        let Some(Gateway { address, interface, .. }) = gateway else { return false };
        let echo = async {
            let echo = tokio::time::timeout(ECHO, icmp::ping(*address, Some(interface)));
            echo.await.is_ok_and(|answer| answer.is_ok())
        };
        if self.echoes.load(Ordering::Relaxed) {
            return echo.await;
        }
        let (echoed, resolved) =
            futures::future::join(echo, crate::netlink::neighbour_answers(*address, interface)).await;
        if echoed {
            self.echoes.store(true, Ordering::Relaxed);
        }
        echoed || resolved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_both_families_answered_before_both_must_answer_after() {
        let ways = Ways::default();
        for ((four, six), enough) in
            [((true, true), true), ((true, false), false), ((false, true), false), ((true, true), true)]
        {
            assert_eq!(ways.are_enough(four, six), enough, "{four} {six}");
        }
        let one = Ways::default();
        for ((four, six), enough) in
            [((false, false), false), ((true, false), true), ((false, true), true), ((true, true), true)]
        {
            assert_eq!(one.are_enough(four, six), enough, "{four} {six}");
        }
    }
}
