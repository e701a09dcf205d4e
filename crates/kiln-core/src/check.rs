//! Rules over the whole world: everything that will go wrong, before anything boots.
