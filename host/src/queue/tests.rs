mod cancel;
mod claim;
mod enqueue;
mod hello;
mod outbox;
mod settle;
mod sign;
mod sweep;
