//! Whole numbers with the range of their type.

use crate::document::{Node, Value};

use super::problem::Problem;

/// The number as `N`, or why not.
pub(super) fn integer<N: TryFrom<i128>>(node: &Node, least: i128, most: i128) -> Result<N, Problem> {
    match node.value {
        Value::Integer(number) => {
            N::try_from(number).map_err(|_| Problem::out_of_range(format!("a number from {least} to {most}")))
        }
        // Go's zero value, for nulls in lists and maps.
        Value::Null => N::try_from(0).map_err(|_| Problem::wrong_type("a whole number")),
        _ => Err(Problem::wrong_type("a whole number")),
    }
}
