//! SACP 0.1 and 1.0: compact agent plans, parsed, checked and run, sans-IO.
