//! Lines that tests wait for.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

/// Where lines are written, and who waits for them.
#[derive(Clone, Default)]
pub(in crate::hub) struct Page(Arc<(Mutex<Vec<u8>>, Notify)>);

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.0.lock().unwrap().extend(bytes);
        self.0.1.notify_one();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Page {
    /// Waits until some words stand on it.
    pub(in crate::hub) async fn until(&self, words: &str) {
        while !self.text().contains(words) {
            self.0.1.notified().await;
        }
    }

    pub(in crate::hub) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.0.lock().unwrap()).into_owned()
    }
}
