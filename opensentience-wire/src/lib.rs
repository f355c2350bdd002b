//! OpenSentience runtime protocol v1: framed JSON between a core and its agents, both roles, sans-IO.
