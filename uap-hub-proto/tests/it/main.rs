//! Integration tests: the wire files, the machines in virtual time, and the transports over loopback.

mod generated;
