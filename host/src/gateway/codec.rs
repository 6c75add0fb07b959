//! Protobuf with small buffers: tonic's own codec keeps 16 KiB for each stream, which ten thousand idle sessions never use.
//!
//! **Invariant:** what goes over the wire is what tonic's codec would send; only buffers differ, and they grow when they have to.

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::ProstCodec;

/// What a stream keeps in each direction, bytes: most frames fit.
const BUFFER: usize = 512;

/// How much is written at once before others get their turn, bytes.
const YIELD: usize = 32 * 1_024;

/// The codec that the generated code uses.
#[derive(Debug)]
pub(crate) struct SmallCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for SmallCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for SmallCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = <ProstCodec<T, U> as Codec>::Encoder;
    type Decoder = <ProstCodec<T, U> as Codec>::Decoder;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(BufferSettings::new(BUFFER, YIELD))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(BufferSettings::new(BUFFER, YIELD))
    }
}
