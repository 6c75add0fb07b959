//! Machines to start from.
//!
//! **Invariant:** presets are fixed: the same one always has the same UUIDs, serials and addresses.

use std::{collections::BTreeMap, str::FromStr};

use crate::state::{Ecc, Gpu, Link, Mig, MigInstance, RemappedRows, State};

/// PCI buses of the eight GPUs on an HGX H100 board's usual host.
const BUSES: [u32; 8] = [0x1b, 0x43, 0x52, 0x61, 0x9d, 0xc3, 0xd1, 0xdf];

/// A machine to start from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Eight healthy H100 SXM (`eight-h100`).
    EightH100,
    /// The same, GPU 0 split by MIG into devices at indexes 0 and 2, with a gap at 1 (`mig-split`).
    MigSplit,
    /// The same, one fault each: 1 waits for a remap, 2 has failed one, 3 is lost, 4 has a ×8 link, 5 has uncorrected
    /// memory errors (`faulty`).
    Faulty,
    /// A driver that is not loaded (`no-driver`).
    NoDriver,
}

impl Preset {
    /// All of them, by the name that [`FromStr`] takes.
    pub const ALL: [(&str, Self); 4] = [
        ("eight-h100", Self::EightH100),
        ("mig-split", Self::MigSplit),
        ("faulty", Self::Faulty),
        ("no-driver", Self::NoDriver),
    ];

    /// The machine.
    pub fn state(self) -> State {
        let mut state = State::eight_h100();
        match self {
            Self::EightH100 => {}
            Self::MigSplit => split(&mut state.gpus[0]),
            Self::Faulty => break_five(&mut state.gpus),
            Self::NoDriver => state.init = Some(9),
        }
        state
    }
}

impl FromStr for Preset {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.iter().find(|(known, _)| *known == name);
        known.map(|(_, preset)| *preset).ok_or_else(|| format!("no preset is called {name:?}"))
    }
}

impl State {
    /// Eight healthy H100 SXM, persistence mode on, MIG off, idle.
    pub fn eight_h100() -> Self {
        Self { gpus: (0..).zip(BUSES).map(|(index, bus)| h100(index, bus)).collect(), ..Self::default() }
    }
}

fn h100(index: u32, bus: u32) -> Gpu {
    Gpu {
        uuid: format!("GPU-51d00000-0000-4000-8000-{index:012x}"),
        name: "NVIDIA H100 80GB HBM3 (simulated)".to_owned(),
        pci: format!("0000:{bus:02x}:00.0"),
        serial: Some(format!("SIM{index:010}")),
        minor: Some(index),
        persistence: true,
        ecc: Some(Ecc { enabled: true, ..Ecc::default() }),
        remapped_rows: Some(RemappedRows::default()),
        link: Link::default(),
        mig: Some(Mig { max_devices: 7, ..Mig::default() }),
        recovery_action: Some(0),
        ..Gpu::default()
    }
}

fn split(gpu: &mut Gpu) {
    let instance = |number: u32| MigInstance {
        uuid: format!("MIG-51d00000-0000-5000-8000-{number:012x}"),
        profile: "1g.10gb".to_owned(),
        gpu_instance: 7 + number,
        compute_instance: 0,
    };
    let instances = BTreeMap::from([(0, instance(0)), (2, instance(2))]);
    gpu.mig = Some(Mig { enabled: true, pending: true, max_devices: 7, instances });
}

fn break_five(gpus: &mut [Gpu]) {
    gpus[1].remapped_rows = Some(RemappedRows { uncorrectable: 1, pending: true, ..RemappedRows::default() });
    gpus[1].recovery_action = Some(1);
    gpus[2].remapped_rows = Some(RemappedRows { uncorrectable: 8, failure: true, ..RemappedRows::default() });
    gpus[3].lost = true;
    gpus[4].link.current_width = 8;
    gpus[5].ecc = Some(Ecc {
        enabled: true,
        volatile_corrected: 2,
        volatile_uncorrected: 1,
        aggregate_corrected: 40,
        aggregate_uncorrected: 3,
    });
}
