//! What a machine said about its newest boot, and whether the network it ended with is the one declared.
//!
//! [`Boot::take`] is the only way in. A report that was taken already changes nothing, and in which order reports of one
//! boot arrive does not matter: for each [`Point`] the latest is kept. What was kept on a disk and delivered by a later
//! boot is told apart from what that boot says of itself.
//!
//! Not here: what all that means for a host that does not come along, see [`super::why()`].

use ipnet::IpNet;

use super::Moment;
use crate::beacon::{Point, Report};

/// The source of what a machine says about itself, in a timeline.
pub const WITNESS: &str = "the machine itself";
/// How large a report may be that is kept, in bytes of JSON: there are ten at most, on each of many hosts.
pub const LARGEST_KEPT: usize = 6 * 1024;
/// How many writers of files are kept.
const MOST_WRITERS: usize = 16;

/// What is known of a host's newest boot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Boot {
    /// The kernel's id of it; empty when only kept reports of others have arrived.
    pub id: String,
    /// The provision generation of the token that was shown.
    pub generation: u64,
    /// The latest report of each point, in the order of the boot.
    pub reports: Vec<Seen>,
    /// The same of one earlier boot, whose reports a later one delivered.
    pub kept: Vec<Seen>,
    /// Whose files stood in the way of the initramfs network.
    pub writers: Vec<Writer>,
}

/// A report and when it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// When; of one that arrived late, when it was made, as far as that can be known.
    pub time: Moment,
    /// What it says.
    pub report: Report,
}

/// Which object puts a file where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Writer {
    /// `/etc/NetworkManager/system-connections/dummy0.nmconnection`.
    pub path: String,
    /// `MachineConfig 50-network-dummy`.
    pub object: String,
}

impl Boot {
    /// Takes a report that was authenticated with a token of this generation. Says whether anything changed.
    pub fn take(&mut self, generation: u64, seen: Seen, writers: &[Writer]) -> bool {
        if generation < self.generation {
            return false;
        }
        let before = self.clone();
        if generation > self.generation {
            *self = Boot { generation, ..Boot::default() };
        }
        let Seen { time, report } = seen;
        let report = report.within(LARGEST_KEPT);
        match (report.boot_id == self.id, report.kept) {
            (true, late) => {
                let time = if late { made_at(&self.reports, &report, time) } else { time };
                put(&mut self.reports, Seen { time, report });
            }
            (false, true) => {
                if self.kept.iter().any(|known| known.report.boot_id != report.boot_id) {
                    self.kept.clear();
                }
                put(&mut self.kept, Seen { time, report });
            }
            // A report that was overtaken by those of the next boot.
            (false, false) if self.reports.iter().any(|known| time < known.time) => {}
            (false, false) => {
                self.id.clone_from(&report.boot_id);
                self.reports = vec![Seen { time, report }];
                self.writers.clear();
                // What was delivered first and turns out to be of this boot.
                let (own, others) =
                    std::mem::take(&mut self.kept).into_iter().partition(|known| known.report.boot_id == self.id);
                self.kept = others;
                let own: Vec<Seen> = own;
                for Seen { time, report } in own {
                    let time = made_at(&self.reports, &report, time);
                    put(&mut self.reports, Seen { time, report });
                }
            }
        }
        for writer in writers {
            if !self.writers.contains(writer) && self.writers.len() < MOST_WRITERS {
                self.writers.push(writer.clone());
            }
        }
        *self != before
    }

    /// The report of a point in the newest boot.
    pub fn at(&self, point: Point) -> Option<&Seen> {
        self.reports.iter().find(|seen| seen.report.point == point)
    }

    /// The furthest that the newest boot reported.
    pub fn last(&self) -> Option<&Seen> {
        self.reports.last()
    }
}

/// The latest of each point stays; the same again is no news.
fn put(reports: &mut Vec<Seen>, seen: Seen) {
    match reports.iter_mut().find(|known| known.report.point == seen.report.point) {
        Some(known) if known.report.uptime_ms >= seen.report.uptime_ms => return,
        Some(known) => *known = seen,
        None => reports.push(seen),
    }
    reports.sort_by_key(|seen| (seen.report.uptime_ms, seen.report.point));
}

/// When a late report of a boot was made, by one of the same boot that arrived at once.
fn made_at(reports: &[Seen], late: &Report, arrived: Moment) -> Moment {
    let Some(known) = reports.iter().find(|seen| !seen.report.kept) else { return arrived };
    let after = i128::from(known.report.uptime_ms) - i128::from(late.uptime_ms);
    let seconds = i64::try_from(after / 1000).unwrap_or(0);
    Moment(known.time.0.saturating_sub(seconds).min(arrived.0))
}

/// What was declared of a host's network, as far as a report can be compared with it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Declared {
    /// Static addresses and the interfaces they are for.
    pub addresses: Vec<(String, IpNet)>,
    /// Where default routes lead.
    pub gateways: Vec<String>,
    /// The hardware addresses of NICs and what they are called, as far as they are called anything.
    pub macs: Vec<(Option<String>, String)>,
}

/// What an arrived system has: in words, or what is missing of what was declared.
pub fn arrival(report: &Report, declared: &Declared) -> Result<String, String> {
    let has: Vec<IpNet> = addresses(report).filter_map(|(_, address)| address.parse().ok()).collect();
    if let Some((interface, address)) = declared.addresses.iter().find(|(_, address)| !has.contains(address)) {
        return Err(format!("{address} is declared for {interface} and missing: {}", told(report)));
    }
    match declared.gateways.first() {
        Some(gateway) if report.default_routes.is_empty() => {
            Err(format!("a default route via {gateway} is declared and missing: {}", told(report)))
        }
        _ => Ok(told(report)),
    }
}

/// `bond0.110 has 10.0.11.11/24, default route via 10.0.11.1`.
pub fn told(report: &Report) -> String {
    let mut words: Vec<String> = Vec::new();
    for interface in &report.interfaces {
        if !interface.addresses.is_empty() && words.len() < 3 {
            words.push(format!("{} has {}", interface.name, interface.addresses.join(" and ")));
        }
    }
    if words.is_empty() {
        words.push("no interface has an address".into());
    }
    words.push(match report.default_routes.first() {
        None => "no default route".into(),
        Some(route) => match &route.gateway {
            Some(gateway) => format!("default route via {gateway}"),
            None => format!("default route on {}", route.interface),
        },
    });
    words.join(", ")
}

/// Every address with its interface; the one with the default route first.
pub(super) fn addresses(report: &Report) -> impl Iterator<Item = (&str, &str)> {
    let way = report.default_routes.first().map(|route| route.interface.as_str());
    let (first, rest): (Vec<_>, Vec<_>) =
        report.interfaces.iter().partition(|interface| Some(interface.name.as_str()) == way);
    first
        .into_iter()
        .chain(rest)
        .flat_map(|interface| interface.addresses.iter().map(|address| (interface.name.as_str(), address.as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::beacon::{DefaultRoute, Interface};
    use proptest::prelude::*;

    fn report(boot: &str, point: Point, uptime: u64) -> Report {
        Report {
            point,
            boot_id: boot.into(),
            uptime_ms: uptime,
            hostname: None,
            interfaces: vec![
                Interface { name: "eth0".into(), mac: None, up: true, addresses: vec![] },
                Interface { name: "bond0.110".into(), mac: None, up: true, addresses: vec!["10.0.11.11/24".into()] },
            ],
            default_routes: vec![DefaultRoute { gateway: Some("10.0.11.1".into()), interface: "bond0.110".into() }],
            profiles: vec![],
            propagation: None,
            ignition_error: None,
            kubelet_key: None,
            kept: false,
        }
    }

    fn seen(boot: &str, point: Point, uptime: u64, time: i64) -> Seen {
        Seen { time: Moment(time), report: report(boot, point, uptime) }
    }

    fn late(boot: &str, point: Point, uptime: u64, time: i64) -> Seen {
        let Seen { time, report } = seen(boot, point, uptime, time);
        Seen { time, report: Report { kept: true, ..report } }
    }

    fn points(reports: &[Seen]) -> Vec<(Point, i64)> {
        reports.iter().map(|seen| (seen.report.point, seen.time.0)).collect()
    }

    #[test]
    fn the_newest_boot_is_kept_and_the_same_report_again_is_no_news() {
        let mut boot = Boot::default();
        assert!(boot.take(1, seen("a", Point::Network, 5000, 100), &[]));
        assert!(!boot.take(1, seen("a", Point::Network, 5000, 101), &[]), "sent twice");
        assert!(boot.take(1, seen("a", Point::Leaving, 9000, 104), &[]));
        assert!(boot.take(1, seen("b", Point::Network, 5000, 200), &[]));
        assert!(!boot.take(1, seen("a", Point::RealRoot, 12_000, 107), &[]), "overtaken");
        assert_eq!((boot.id.as_str(), points(&boot.reports)), ("b", vec![(Point::Network, 200)]));
        assert!(boot.take(2, seen("c", Point::Network, 5000, 150), &[]), "a new generation begins anew");
        assert!(!boot.take(1, seen("d", Point::Network, 5000, 300), &[]), "an old one is over");
        assert_eq!((boot.id.as_str(), boot.generation), ("c", 2));
    }

    #[test]
    fn what_was_kept_belongs_to_its_own_boot_and_its_time_is_worked_out() {
        let mut boot = Boot::default();
        boot.take(1, late("old", Point::Leaving, 9000, 500), &[]);
        boot.take(1, seen("new", Point::RealRoot, 20_000, 510), &[]);
        assert_eq!(
            (points(&boot.reports), points(&boot.kept)),
            (vec![(Point::RealRoot, 510)], vec![(Point::Leaving, 500)])
        );
        boot.take(1, late("new", Point::Network, 5000, 511), &[]);
        assert_eq!(points(&boot.reports), [(Point::Network, 495), (Point::RealRoot, 510)]);
        boot.take(1, late("older", Point::Network, 1, 512), &[]);
        assert_eq!((boot.kept.len(), boot.kept[0].report.boot_id.as_str()), (1, "older"));
        // Delivered before the boot has spoken for itself.
        let mut boot = Boot::default();
        boot.take(1, late("new", Point::Network, 5000, 500), &[]);
        boot.take(1, seen("new", Point::RealRoot, 20_000, 510), &[]);
        assert_eq!((points(&boot.reports), boot.kept.len()), (vec![(Point::Network, 495), (Point::RealRoot, 510)], 0));
    }

    #[test]
    fn an_arrived_system_has_what_was_declared_or_it_is_told_what_is_missing() {
        let declared = |address: &str, gateway: &[&str]| Declared {
            addresses: vec![("bond0.110".into(), address.parse().unwrap())],
            gateways: gateway.iter().map(|gateway| (*gateway).to_owned()).collect(),
            macs: vec![],
        };
        let arrived = report("a", Point::RealRoot, 1);
        let cut_off = Report { interfaces: vec![], default_routes: vec![], ..arrived.clone() };
        let no_way = Report { default_routes: vec![], ..arrived.clone() };
        for (report, declared, expected) in [
            (&arrived, Declared::default(), Ok("bond0.110 has 10.0.11.11/24, default route via 10.0.11.1")),
            (
                &arrived,
                declared("10.0.11.11/24", &["10.0.11.1"]),
                Ok("bond0.110 has 10.0.11.11/24, default route via 10.0.11.1"),
            ),
            (
                &arrived,
                declared("10.0.11.12/24", &[]),
                Err(
                    "10.0.11.12/24 is declared for bond0.110 and missing: bond0.110 has 10.0.11.11/24, default route via 10.0.11.1",
                ),
            ),
            (
                &no_way,
                declared("10.0.11.11/24", &["10.0.11.1"]),
                Err(
                    "a default route via 10.0.11.1 is declared and missing: bond0.110 has 10.0.11.11/24, no default route",
                ),
            ),
            (&no_way, declared("10.0.11.11/24", &[]), Ok("bond0.110 has 10.0.11.11/24, no default route")),
            (
                &cut_off,
                declared("10.0.11.11/24", &[]),
                Err(
                    "10.0.11.11/24 is declared for bond0.110 and missing: no interface has an address, no default route",
                ),
            ),
        ] {
            let arrival = arrival(report, &declared);
            assert_eq!(arrival.as_deref().map_err(String::as_str), expected);
        }
    }

    #[test]
    fn however_much_is_reported_a_boot_stays_small() {
        let mut boot = Boot::default();
        let long = "x".repeat(100_000);
        for (number, point) in
            [Point::Network, Point::IgnitionFailed, Point::Leaving, Point::RealRoot].into_iter().enumerate()
        {
            let report = Report { ignition_error: Some(long.clone()), ..report("a", point, number as u64) };
            boot.take(
                1,
                Seen { time: Moment(1), report },
                &vec![Writer { path: number.to_string(), object: "o".into() }; 40],
            );
        }
        assert!(boot.reports.iter().all(|seen| serde_json::to_string(&seen.report).unwrap().len() <= LARGEST_KEPT));
        assert_eq!((boot.reports.len(), boot.writers.len()), (4, 4));
    }

    fn any_seen() -> impl Strategy<Value = Seen> {
        let points = [Point::Network, Point::IgnitionFailed, Point::Leaving, Point::RealRoot, Point::KubeletKey];
        // one boot, whose clock and the hub's run alike
        (proptest::sample::select(points.to_vec()), 0..60_u64, any::<bool>()).prop_map(|(point, second, kept)| {
            let Seen { time, report } = seen("a", point, second * 1000, 1000 + second.cast_signed());
            Seen { time, report: Report { kept, ..report } }
        })
    }

    proptest! {
        #[test]
        fn in_which_order_reports_of_a_boot_arrive_does_not_matter(mut all in prop::collection::vec(any_seen(), 1..20)) {
            let first = seen("a", Point::Network, 0, 1000);
            let taken = |all: &[Seen]| {
                let mut boot = Boot::default();
                boot.take(1, first.clone(), &[]);
                for seen in all {
                    boot.take(1, seen.clone(), &[]);
                }
                points(&boot.reports)
            };
            let once = taken(&all);
            all.reverse();
            prop_assert_eq!(taken(&all), once);
        }
    }
}
