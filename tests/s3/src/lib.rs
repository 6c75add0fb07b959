//! An S3 server over a folder, on loopback: signatures, methods, keys and ends are checked as S3 does.
//!
//! **Invariant:** it runs apart from the test's own runtime, and ends with its handle.

use std::convert::Infallible;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use axum::Router;
use axum::error_handling::HandleError;
use axum::http::StatusCode;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use tokio::sync::oneshot;

/// The access key's name.
pub const ACCESS_KEY_ID: &str = "AKIATESTBUNDLES";
/// The access key. Tests look for it in all that is left behind.
pub const SECRET_ACCESS_KEY: &str = "s3cretUJ7xkQm2vTn9pLrW4eYbZc8aHdFgK";
/// The bucket that is there.
pub const BUCKET: &str = "support";

/// A server.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    folder: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves a folder with one bucket on a port of its own.
    ///
    /// # Panics
    /// When it cannot listen.
    pub fn start(folder: &Path) -> Self {
        fs::create_dir_all(folder.join(BUCKET)).expect("the bucket is a folder");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
        listener.set_nonblocking(true).expect("the port can be polled");
        let address = listener.local_addr().expect("it is bound");
        let service = service(folder);
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).expect("it listens");
                let router = Router::new().fallback_service(HandleError::new(service, failed));
                tokio::select! {
                    served = axum::serve(listener, router) => served.expect("it serves"),
                    _ = stopped => {}
                }
            });
        });
        Self { address, folder: folder.to_owned(), stop: Some(stop), thread: Some(thread) }
    }

    /// Where it listens, `http://127.0.0.1:PORT`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The file of an object.
    pub fn object(&self, key: &str) -> PathBuf {
        self.folder.join(BUCKET).join(key)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // What it panicked of was printed by the thread.
            let _ = thread.join();
        }
    }
}

fn service(folder: &Path) -> S3Service {
    let files = s3s_fs::FileSystem::new(folder).expect("the folder is there");
    let mut builder = S3ServiceBuilder::new(files);
    builder.set_auth(SimpleAuth::from_single(ACCESS_KEY_ID, SECRET_ACCESS_KEY));
    builder.build()
}

async fn failed(error: s3s::HttpError) -> Result<StatusCode, Infallible> {
    let _ = error;
    Ok(StatusCode::INTERNAL_SERVER_ERROR)
}
