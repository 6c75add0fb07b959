//! Time and randomness, as arguments: what a replica of the control plane reads of the world besides its database.
//!
//! **Invariant:** nothing in the gateway and the loops reads a clock for a decision or draws random numbers but through this.

use std::fmt;
use std::sync::Arc;

use sqlx::types::Uuid;
use time::OffsetDateTime;

/// Fills bytes with random ones.
type Entropy = dyn Fn(&mut [u8]) + Send + Sync;

/// A clock and a source of randomness. Cheap to clone.
#[derive(Clone)]
pub struct World {
    clock: Arc<dyn Fn() -> OffsetDateTime + Send + Sync>,
    entropy: Arc<Entropy>,
}

impl World {
    /// The machine's.
    pub fn real() -> Self {
        Self::new(OffsetDateTime::now_utc, |bytes| getrandom::fill(bytes).expect("the kernel gives random bytes"))
    }

    /// One that the caller makes.
    pub fn new(
        clock: impl Fn() -> OffsetDateTime + Send + Sync + 'static,
        entropy: impl Fn(&mut [u8]) + Send + Sync + 'static,
    ) -> Self {
        Self { clock: Arc::new(clock), entropy: Arc::new(entropy) }
    }

    /// The time now.
    pub fn now(&self) -> OffsetDateTime {
        (self.clock)()
    }

    /// Random bytes.
    pub fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        (self.entropy)(&mut bytes);
        bytes
    }

    /// A number drawn from 0..1.
    pub fn fraction(&self) -> f64 {
        f64::from(u32::from_be_bytes(self.bytes())) / (f64::from(u32::MAX) + 1.0)
    }

    /// A new UUID of version 7.
    pub fn uuid(&self) -> Uuid {
        sqlx::types::uuid::Builder::from_unix_timestamp_millis(crate::store::unix_ms(self.now()), &self.bytes())
            .into_uuid()
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}
