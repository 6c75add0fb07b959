//! `node.reboot`: boots the machine anew.
//!
//! It asks for the reboot and ends; the daemon carries it out once that is durable, and the next boot is the command's end. This
//! file asks the host; [`order`] holds the pure part.
//!
//! **Invariant:** one run asks once, and never out of another boot than the one that was named.

mod order;

use order::{Answer, Payload};
use sdk::{Context, Failure, Kind, Problem, system};

struct Reboot;

impl Kind for Reboot {
    type Payload = Payload;
    type Output = Answer;

    fn validate(payload: &Payload) -> Vec<Problem> {
        order::problems(payload)
    }

    fn run(ctx: &Context, payload: Payload) -> Result<Answer, Failure> {
        let answer = order::out_of(&payload, system::boot_id())?;
        system::reboot(&order::reason(&payload, &ctx.command_id)).map_err(order::refused)?;
        Ok(answer)
    }
}

sdk::export!(Reboot);
