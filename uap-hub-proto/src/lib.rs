//! UAP hub v1: gRPC hub and fleet agents, protobuf types, negotiation and sessions, sans-IO.
mod generated;
