//! Orders and settings of operators.

mod configure;
mod controls;
mod operate;
mod ordered;
