//! JSON text to a [`Node`], read the way Go's `encoding/json` reads it.
