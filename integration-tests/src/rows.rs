//! Rows that a test writes at its beginning and checks at its end.

use archon_client::Client;

/// Rows `k/0`, `k/1` and so on, each with a value of its own.
#[derive(Clone, Copy, Debug)]
pub struct Rows(usize);

impl Rows {
    /// Writes `count` rows.
    ///
    /// # Panics
    /// If one is not acknowledged.
    pub async fn written(client: &Client, count: usize) -> Self {
        let rows = Self(count);
        rows.write(client).await;
        rows
    }

    /// Writes all of them again.
    ///
    /// # Panics
    /// If one is not acknowledged.
    pub async fn write(self, client: &Client) {
        for number in 0..self.0 {
            client.put(key(number), value(number)).await.unwrap_or_else(|error| panic!("{}: {error}", key(number)));
        }
    }

    /// Overwrites each with another value.
    ///
    /// # Panics
    /// If one is not acknowledged.
    pub async fn spoil(self, client: &Client) {
        for number in 0..self.0 {
            client.put(key(number), "nonsense").await.unwrap_or_else(|error| panic!("{}: {error}", key(number)));
        }
    }

    /// Reads all of them.
    ///
    /// # Panics
    /// If one is missing or different.
    pub async fn assert_there(self, client: &Client) {
        for number in 0..self.0 {
            let found = client.get(key(number)).await.unwrap_or_else(|error| panic!("{}: {error}", key(number)));
            assert_eq!(found.map(|found| found.value.to_vec()), Some(value(number).into_bytes()), "{}", key(number));
        }
    }
}

fn key(number: usize) -> String {
    format!("k/{number}")
}

fn value(number: usize) -> String {
    format!("v/{number}")
}
