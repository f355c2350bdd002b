//! SAP V2.0: agent tasks and results under constitutional governance, sans-IO.
