//! Kits for SAP V2.0.
