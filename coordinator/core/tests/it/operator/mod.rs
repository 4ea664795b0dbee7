//! Orders and settings of operators.

mod attempts;
mod configure;
mod controls;
mod operate;
mod ordered;
