//! What the tests of this crate share.

mod cases;
pub mod summary;

pub use cases::check_cases;
