//! A backup into the running server.

use super::Server;
use crate::store::backup::RestoredTokens;
use crate::store::restore::{RestoreError, Restored};

impl Server {
    /// Makes everything equal to the database that was put into the store's folder, and serves that. An error means that
    /// nothing was changed.
    pub async fn restore(&self, sha256: String, tokens: RestoredTokens) -> Result<Restored, RestoreError> {
        // Nobody gets or loses a token between the disk and the table; and one restore at a time.
        let _turn = self.tokens_turn.lock().await;
        let restored = self.store.restore(sha256, tokens).await?;
        self.guard.tokens.replace_issued(restored.tokens.clone());
        self.refresh_registry();
        self.restores.send_modify(|count| *count += 1);
        let Restored { from, created, changed, deleted, revision, tokens: _ } = &restored;
        tracing::info!(from, created, changed, deleted, revision, "a backup was restored");
        Ok(restored)
    }
}
