//! Runs of the simulated world from bounded numbers of seeds.

mod same_run;
mod seeds;
