//! Static checks: they read files of the repository and run no part of the product.

mod circles;
mod documents;
mod features;
mod folders;
mod limits;
mod packaging;
mod prose;
mod recipes;
mod reference;
mod rules;
mod words;
