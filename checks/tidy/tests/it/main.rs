//! Static checks: they read files of the repository and run no part of the product.

mod documents;
mod features;
mod limits;
mod packaging;
mod prose;
mod rules;
mod words;
