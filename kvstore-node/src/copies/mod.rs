//! Copies of partitions that this node pulls from leaders: tasks, pace, and the format of pages.

pub(crate) mod copy;
pub(crate) mod copy_pace;
pub(crate) mod copy_rest;
pub(crate) mod pages;
