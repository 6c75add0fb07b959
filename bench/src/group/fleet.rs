//! B: the whole way, with a real gateway and real bcd processes over mutual TLS, signed and journaled. Not written yet.
//!
//! It needs a replica that can be started in this process (`bc_host::server::run` over a listener on the loopback), a way to join
//! nodes and start bcd with a folder each, and for B3 and B4 sessions in this process that speak the real protocol, since 10,000
//! processes do not fit. Floors come from group A's [`super::queue`], in the same run.
//!
//! | figure | what is done | beside | goal |
//! |---|---|---|---|
//! | B1 | one bcd, idle; `commands.run` of the no-op kind by HTTP, until `events.watch` says settled; p50 and p99 of 200 | A5 and two fsyncs of a file in the journal's folder, measured in the same turns | ≤ 2 × their sum |
//! | B2 | 32 bcd; 8 enqueuers for 2 s, until all are settled | A4 | ≥ 0.5 × A4 |
//! | B3 | 10,000 sessions of the protocol without a kind on one replica, in a process of its own; (RSS with them − RSS without) / 10,000, and its CPU time over 60 idle seconds | – | ≤ 60 KiB, ≤ 5 % of one core |
//! | B4 | those sessions, each with one command in flight, cut at once; until each has its command again | one `select` of the same rows | ≤ 20 × floor, no error |
//! | B5 | one bcd with all kinds of `plugins/dist`, idle for 60 s: RSS, and from `/proc/<pid>` and the SQLite trace its wake-ups and queries a second | – | ≤ 40 MiB, ≤ 1 |
//! | B6 | B2 with 4 replicas over one Postgres, the sessions spread, in turns with 1 | B2 | ≥ 1.0 within the spread |
//!
//! **Invariant:** what cannot be had on one machine is simulated at the protocol and said to be.
