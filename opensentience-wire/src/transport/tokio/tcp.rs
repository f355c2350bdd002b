//! Loopback TCP, for where there are no Unix sockets. Nothing listens unless it is asked to, and nobody beyond this machine is
//! heard.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};

/// Listens for agents on a loopback address. Give what it accepts to [`attach`](super::attach).
///
/// A loopback port is open to every user of the machine, and tells nothing of the process behind it: the token alone decides.
/// Prefer [`Launcher`](super::Launcher) and its socket where there are Unix sockets.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use opensentience_wire::transport::tokio::Loopback;
///
/// let loopback = Loopback::bind("127.0.0.1:0".parse()?).await?;
/// let address = loopback.address()?;
/// let stream = loopback.accept().await?;
/// # let _ = (address, stream);
/// # Ok(())
/// # }
/// ```
///
/// Spec: OpenSentience 1
#[derive(Debug)]
pub struct Loopback(TcpListener);

impl Loopback {
    /// Listens on an address; port 0 takes one that is free.
    ///
    /// # Errors
    ///
    /// The address is no loopback address, or is taken.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        only_loopback(address)?;
        TcpListener::bind(address).await.map(Self)
    }

    /// Where it listens.
    ///
    /// # Errors
    ///
    /// The system does not tell.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// The next connection from a loopback address; others are closed. May be dropped at any time.
    ///
    /// # Errors
    ///
    /// The system refuses it.
    pub async fn accept(&self) -> io::Result<TcpStream> {
        loop {
            let (stream, peer) = self.0.accept().await?;
            // A program of this machine may bind another address of it; one from beyond gets here where the system routes it.
            // Neither may end who listens.
            if only_loopback(peer).is_ok() {
                return at_once(stream);
            }
        }
    }

    /// Connects an agent to its core.
    ///
    /// # Errors
    ///
    /// The address is no loopback address, or nobody listens there.
    pub async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
        only_loopback(address)?;
        at_once(TcpStream::connect(address).await?)
    }
}

/// Every machine that reaches another address could connect.
// impl: OSW-1-1
fn only_loopback(address: SocketAddr) -> io::Result<()> {
    if address.ip().is_loopback() {
        return Ok(());
    }
    let why = format!("{address} is not a loopback address");
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}

/// Small frames must not wait for the answer to the one before.
fn at_once(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt as _;

    // spec: OSW-1-1
    #[tokio::test]
    async fn who_comes_from_another_address_is_closed_and_the_next_is_heard() {
        // An IPv6 socket sees 127.0.0.1 as ::ffff:127.0.0.1, which is no loopback address: it stands for any other.
        let loopback = Loopback(TcpListener::bind("[::]:0").await.unwrap());
        let port = loopback.address().unwrap().port();
        let mut other = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let own = TcpStream::connect(("::1", port)).await.unwrap();
        let heard = loopback.accept().await.unwrap();
        assert_eq!(heard.peer_addr().unwrap(), own.local_addr().unwrap());
        assert_eq!(other.read(&mut [0]).await.unwrap_or(0), 0);
    }
}
