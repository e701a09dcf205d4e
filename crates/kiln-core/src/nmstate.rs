//! nmstate documents to NetworkManager keyfiles, with nothing dropped in silence.
