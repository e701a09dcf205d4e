//! What each host will have at each phase, and the steps that lead there.
