//! How many nodes may be out: a number or a percentage, as it was written.

/// Of nodes that may be out at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Budget {
    /// So many.
    Count(usize),
    /// So many of a hundred, rounded up as kubernetes-nmstate does.
    Percent(usize),
    /// So many of a hundred, rounded down as pools do.
    PercentDown(usize),
}

/// kubernetes-nmstate's.
impl Default for Budget {
    fn default() -> Self {
        Budget::Percent(50)
    }
}

impl Budget {
    /// `3` or `20%` of a policy. What nobody can read is the default, as upstream has it.
    pub fn of_policy(written: Option<&str>) -> Budget {
        written.and_then(parse).unwrap_or_default()
    }

    /// The same of a pool, whose percentages are rounded down. None when nothing is written.
    pub fn of_pool(written: Option<&str>) -> Option<Budget> {
        Some(match parse(written?) {
            Some(Budget::Percent(percent)) => Budget::PercentDown(percent),
            Some(budget) => budget,
            None => Budget::Count(1),
        })
    }

    /// How many of these nodes. At least one, and never all of several.
    pub fn among(self, nodes: usize) -> usize {
        self.written(nodes).min(nodes.saturating_sub(1)).max(1)
    }

    /// How many of these nodes as it is written; at least one.
    pub fn written(self, nodes: usize) -> usize {
        let many = match self {
            Budget::Count(count) => count,
            Budget::Percent(percent) => nodes.saturating_mul(percent).div_ceil(100),
            Budget::PercentDown(percent) => nodes.saturating_mul(percent) / 100,
        };
        many.max(1)
    }
}

fn parse(text: &str) -> Option<Budget> {
    let text = text.trim();
    match text.strip_suffix('%') {
        Some(percent) => percent.parse().ok().map(Budget::Percent),
        None => text.parse().ok().map(Budget::Count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_at_least_one_and_never_everybody() {
        for (written, nodes, expected) in [
            (None, 0, 1),
            (None, 1, 1),
            (None, 2, 1),
            (None, 3, 2),
            (None, 5, 3),
            (Some("1"), 9, 1),
            (Some("0"), 9, 1),
            (Some("0%"), 9, 1),
            (Some("9"), 9, 8),
            (Some("100%"), 9, 8),
            (Some("999999999999999999999"), 4, 2),
            (Some("10%"), 11, 2),
            (Some("-3"), 4, 2),
            (Some("many"), 4, 2),
        ] {
            assert_eq!(Budget::of_policy(written).among(nodes), expected, "{written:?} of {nodes}");
        }
        for (written, nodes, expected) in
            [(Some("10%"), 19, Some(1)), (Some("50%"), 3, Some(1)), (Some("x"), 9, Some(1)), (None, 9, None)]
        {
            assert_eq!(Budget::of_pool(written).map(|budget| budget.among(nodes)), expected, "{written:?} of {nodes}");
        }
    }
}
