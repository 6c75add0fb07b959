//! `metal.image.deploy`: writes an image onto a whole disk.
//!
//! This file asks and acts; [`body`] decides.
//!
//! **Invariant:** success means that the disk was read back and gave the wanted digest.

mod body;

use body::{Deployed, Payload};
use sdk::block_devices::{self, ImageRequest};
use sdk::{Context, Failure, Kind};

struct Deploy;

impl Kind for Deploy {
    type Payload = Payload;
    type Output = Deployed;

    fn run(_: &Context, payload: Payload) -> Result<Deployed, Failure> {
        let device = body::choose(&payload, block_devices::devices()?)?;
        let request = ImageRequest {
            device: device.path.clone(),
            serial: device.serial.clone(),
            image: payload.image.clone(),
            sha256: payload.sha256.clone(),
        };
        let report = block_devices::write_image(&request)?;
        body::judge(payload, device, report)
    }
}

sdk::export!(Deploy);
