//! Times as the API writes them, and ages as `kubectl get` shows them.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;

/// `2026-01-31T12:00:00Z`: whole seconds, UTC.
pub fn render_timestamp(at: OffsetDateTime) -> String {
    let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]Z");
    // A year beyond 9999 is the only thing that cannot be written.
    at.to_offset(time::UtcOffset::UTC).format(format).unwrap_or_default()
}

/// Reads any RFC 3339 time.
pub fn parse_timestamp(text: &str) -> Option<OffsetDateTime> {
    OffsetDateTime::parse(text, &Rfc3339).ok()
}

/// How long ago, in at most two units: `47s`, `5m3s`, `3h12m`, `2d4h`, `400d`, `3y10d`.
pub fn render_age(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let pair = |large: i64, unit: &str, small: i64, smaller: &str| match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit}{small}{smaller}"),
    };
    match seconds {
        i64::MIN..=-2 => "<invalid>".into(),
        -1 => "0s".into(),
        0..120 => format!("{seconds}s"),
        120..600 => pair(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => pair(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => pair(days, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => pair(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_at_most_two_units() {
        for (seconds, expected) in [
            (-5, "<invalid>"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (303, "5m3s"),
            (3600, "60m"),
            (11_520, "3h12m"),
            (86_400, "24h"),
            (187_200, "2d4h"),
            (86_400 * 400, "400d"),
            (86_400 * 1105, "3y10d"),
        ] {
            assert_eq!(render_age(seconds), expected, "{seconds}");
        }
    }

    #[test]
    fn a_timestamp_is_read_back() {
        let at = parse_timestamp("2026-01-31T12:00:00.123456+02:00").unwrap();
        assert_eq!(render_timestamp(at), "2026-01-31T10:00:00Z");
    }
}
