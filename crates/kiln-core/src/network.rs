//! Sets of connection profiles: what they mean together, merge by meaning, difference.
