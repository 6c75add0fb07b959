//! Where images come from: folders and web servers that the node's operator names.
//!
//! **Invariant:** a reference is a relative name without a way out of its source; nothing but a configured source is ever asked.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bc_runtime::capability::{Answer, Error};
use reqwest::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, IF_RANGE, LAST_MODIFIED, RANGE};
use reqwest::{Client, Response, StatusCode};
use serde::Deserialize;

use super::OfRun;
use crate::authorities;

/// The longest reference, bytes.
const REFERENCE_BYTES: usize = 256;

/// How often in a row a download may break off without a byte gained.
const BREAKS: u32 = 8;

/// The longest wait after a break; with eight of them a server has about two minutes to come back.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// How much of a file is read at once.
const PIECE_BYTES: usize = 1024 * 1024;

/// `[images]` of the configuration.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Images {
    /// Where images are looked for, in this order: `https://…/`, `http://…/` or `file:///…/`.
    pub sources: Vec<String>,
    /// The only authorities that web servers are believed by, a PEM file; without it the system's.
    pub ca: Option<PathBuf>,
    /// How long a server may say nothing before the connection is given up.
    #[serde(deserialize_with = "crate::config::span")]
    pub stall: Duration,
    /// The wait before a download that broke off is gone on with; it doubles while nothing comes.
    #[serde(deserialize_with = "crate::config::span")]
    pub retry: Duration,
}

impl Default for Images {
    fn default() -> Self {
        Self { sources: Vec::new(), ca: None, stall: Duration::from_secs(30), retry: Duration::from_secs(1) }
    }
}

/// The sources, checked.
pub(super) struct Sources {
    places: Vec<Source>,
    client: Client,
    stall: Duration,
    retry: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    Folder(PathBuf),
    /// With a `/` at its end.
    Web(String),
}

/// What takes an image's bytes.
pub(super) trait Sink {
    /// Everything from the first byte on comes again. Errors when the image, so long, does not fit.
    fn begin(&mut self, total: Option<u64>) -> Answer<()>;
    fn take(&mut self, bytes: &[u8]) -> Answer<()>;
    /// How many bytes it has.
    fn taken(&self) -> u64;
}

fn certificates(file: &Path) -> anyhow::Result<Vec<reqwest::Certificate>> {
    let pem = std::fs::read(file).map_err(|error| anyhow::anyhow!("[images] ca: {}: {error}", file.display()))?;
    reqwest::Certificate::from_pem_bundle(&pem)
        .map_err(|error| anyhow::anyhow!("[images] ca: {} holds no certificates: {error}", file.display()))
}

impl Sources {
    /// Errors name the source that does not fit.
    pub(super) fn new(images: &Images) -> anyhow::Result<Self> {
        let sources = images.sources.iter().map(|text| source(text)).collect::<Result<_, _>>();
        let sources = sources.map_err(|error| anyhow::anyhow!("[images] sources: {error}"))?;
        // Whoever made a client in this process before chose the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let believed = images.ca.as_deref().map(certificates).transpose()?;
        let client = Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(images.stall)
            .tls_certs_only(believed.unwrap_or_else(authorities::of_system));
        Ok(Self { places: sources, client: client.build()?, stall: images.stall, retry: images.retry })
    }

    /// Hands an image over, from the first source that has it and can give all of it.
    pub(super) fn fetch(&self, run: &OfRun, image: &str, sink: &mut impl Sink) -> Answer<()> {
        check_reference(image).map_err(|rule| Error::new("invalid-image", format!("the image `{image}`: {rule}")))?;
        if self.places.is_empty() {
            let message = "this node has no image sources: name some in bcd.toml, [images] sources = [\"https://…/\"]";
            return Err(Error::new("no-source", message));
        }
        let mut refusals: Vec<Error> = Vec::new();
        for source in &self.places {
            let done = match source {
                Source::Folder(folder) => from_file(run, &folder.join(image), sink),
                Source::Web(base) => {
                    tokio::runtime::Handle::current().block_on(self.download(run, format!("{base}{image}"), sink))
                }
            };
            match done {
                Err(error) if matches!(error.code.as_str(), "not-found" | "source") => refusals.push(error),
                done => return done,
            }
        }
        let is_nowhere = refusals.iter().all(|error| error.code == "not-found");
        let reasons: Vec<_> = refusals.into_iter().map(|error| error.message).collect();
        Err(Error::new(if is_nowhere { "not-found" } else { "source" }, reasons.join("; ")))
    }

    async fn download(&self, run: &OfRun, url: String, sink: &mut impl Sink) -> Answer<()> {
        let mut version = None;
        let mut breaks = 0;
        let mut is_begun = false;
        loop {
            let before = if is_begun { sink.taken() } else { 0 };
            let why = match self.try_once(run, &url, &mut version, &mut is_begun, sink).await {
                Ok(()) => return Ok(()),
                Err(Broken::For(error)) => return Err(error),
                Err(Broken::Perhaps(why)) => why,
            };
            breaks = if is_begun && sink.taken() > before { 0 } else { breaks + 1 };
            if breaks > BREAKS {
                let message =
                    format!("{url} was given up after {} bytes: {why}", if is_begun { sink.taken() } else { 0 });
                return Err(Error::new("source", message));
            }
            tracing::warn!(url, breaks, taken = sink.taken(), why, "an image's download broke off and is gone on with");
            run.pause((self.retry * 2_u32.pow(breaks.saturating_sub(1))).min(LONGEST_WAIT)).await?;
        }
    }

    /// One connection. `version` is what the server calls the file that was begun.
    async fn try_once(
        &self,
        run: &OfRun,
        url: &str,
        version: &mut Option<String>,
        is_begun: &mut bool,
        sink: &mut impl Sink,
    ) -> Result<(), Broken> {
        let taken = if *is_begun { sink.taken() } else { 0 };
        let mut request = self.client.get(url);
        // Without a name for the file's version nobody knows whether the rest belongs to what is there: it comes whole again.
        if taken > 0
            && let Some(version) = &*version
        {
            request = request.header(RANGE, format!("bytes={taken}-")).header(IF_RANGE, version);
        }
        let response = run.while_wanted(tokio::time::timeout(self.stall, request.send())).await?;
        let mut response = match response {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(Broken::Perhaps(in_words(&error))),
            Err(_) => return Err(Broken::Perhaps(format!("no answer within {} s", self.stall.as_secs()))),
        };
        let total = begins(url, &response, taken)?;
        if let Total::Whole(total) = total {
            *version = version_of(response.headers());
            *is_begun = true;
            sink.begin(total)?;
        }
        loop {
            match run.while_wanted(tokio::time::timeout(self.stall, response.chunk())).await? {
                Ok(Ok(Some(bytes))) => sink.take(&bytes)?,
                Ok(Ok(None)) => break,
                Ok(Err(error)) => return Err(Broken::Perhaps(in_words(&error))),
                Err(_) => return Err(Broken::Perhaps(format!("nothing came for {} s", self.stall.as_secs()))),
            }
        }
        match total {
            Total::Whole(Some(total)) | Total::Rest(total) if sink.taken() != total => {
                Err(Broken::Perhaps(format!("{} of {total} bytes came", sink.taken())))
            }
            _ => Ok(()),
        }
    }
}

/// Why a connection gave no whole image.
enum Broken {
    /// Another try gives the same.
    For(Error),
    /// Another try may go on.
    Perhaps(String),
}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self::For(error)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Total {
    /// From the first byte on; its length if it is known.
    Whole(Option<u64>),
    /// From where it was asked on.
    Rest(u64),
}

/// What an answer's head says about the bytes that follow.
fn begins(url: &str, response: &Response, taken: u64) -> Result<Total, Broken> {
    let status = response.status();
    match status {
        StatusCode::OK => {
            let length = response.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
            Ok(Total::Whole(length))
        }
        StatusCode::PARTIAL_CONTENT => {
            let range = response.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok());
            match range.and_then(content_range) {
                Some((first, total)) if first == taken => Ok(Total::Rest(total)),
                _ => {
                    Err(Broken::For(Error::new("source", format!("{url} answers with a part that was not asked for"))))
                }
            }
        }
        StatusCode::NOT_FOUND | StatusCode::GONE => {
            Err(Broken::For(Error::new("not-found", format!("there is no {url} ({status})"))))
        }
        _ if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
            Err(Broken::Perhaps(format!("it answers {status}")))
        }
        _ => Err(Broken::For(Error::new("source", format!("{url} answers {status}")))),
    }
}

/// First byte and whole length of `bytes 5-9/10`.
fn content_range(text: &str) -> Option<(u64, u64)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    Some((range.split_once('-')?.0.trim().parse().ok()?, total.trim().parse().ok()?))
}

/// What names a version of a file in a later `If-Range`. A weak tag does not.
fn version_of(headers: &HeaderMap) -> Option<String> {
    let text = |name| headers.get(name).and_then(|value: &reqwest::header::HeaderValue| value.to_str().ok());
    let tag = text(ETAG).filter(|tag| !tag.starts_with("W/"));
    tag.or_else(|| text(LAST_MODIFIED)).map(str::to_owned)
}

fn from_file(run: &OfRun, path: &Path, sink: &mut impl Sink) -> Answer<()> {
    let failed = |error: &std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::new("not-found", format!("there is no {}", path.display())),
        _ => Error::new("source", format!("{} cannot be read: {error}", path.display())),
    };
    let mut file = File::open(path).map_err(|error| failed(&error))?;
    let metadata = file.metadata().map_err(|error| failed(&error))?;
    if !metadata.is_file() {
        return Err(Error::new("source", format!("{} is no file", path.display())));
    }
    sink.begin(Some(metadata.len()))?;
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        run.go_on()?;
        match file.read(&mut piece).map_err(|error| failed(&error))? {
            0 => return Ok(()),
            count => sink.take(&piece[..count])?,
        }
    }
}

/// The error with what lies below it: the outermost alone says that there was one.
fn in_words(error: &dyn std::error::Error) -> String {
    let below = std::iter::successors(error.source(), |error| error.source());
    std::iter::once(error.to_string()).chain(below.map(ToString::to_string)).collect::<Vec<_>>().join(": ")
}

fn source(text: &str) -> Result<Source, String> {
    if let Some(path) = text.strip_prefix("file://") {
        let path = PathBuf::from(path);
        return if path.is_absolute() {
            Ok(Source::Folder(path))
        } else {
            Err(format!("`{text}` is no absolute path"))
        };
    }
    let url = reqwest::Url::parse(text).map_err(|error| format!("`{text}` is no URL: {error}"))?;
    let is_plain = matches!(url.scheme(), "http" | "https") && url.query().is_none() && url.fragment().is_none();
    if !is_plain {
        return Err(format!("`{text}` is to begin with https://, http:// or file:///, and to have no `?` or `#`"));
    }
    Ok(Source::Web(format!("{}/", text.trim_end_matches('/'))))
}

/// A relative name: segments of letters, digits, `.`, `_`, `-`, `+` with `/` between, none of which begins with a dot.
fn check_reference(image: &str) -> Result<(), &'static str> {
    if image.is_empty() || image.len() > REFERENCE_BYTES {
        return Err("a name has 1 to 256 bytes");
    }
    for segment in image.split('/') {
        if segment.is_empty() || segment.starts_with('.') {
            return Err("a name is relative, and no part of it is empty or begins with a dot");
        }
        if !segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-+".contains(&byte)) {
            return Err("a name consists of letters, digits, `.`, `_`, `-`, `+` and `/`");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_reference_leads_nowhere_else() {
        for right in ["a.img", "ubuntu/24.04/node-1.raw", "a+b_c"] {
            assert_eq!(check_reference(right), Ok(()), "{right}");
        }
        for wrong in
            ["", "/etc/shadow", "../a", "a/../b", "a//b", "a/.hidden", "a?b", "a%2e", "http://x/a", "a b", "a\\b"]
        {
            assert!(check_reference(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_source_is_a_folder_or_a_web_server() {
        assert_eq!(source("file:///srv/images/"), Ok(Source::Folder("/srv/images/".into())));
        assert_eq!(source("https://images.site.example"), Ok(Source::Web("https://images.site.example/".into())));
        for wrong in ["file://images", "ftp://a/", "images", "https://a/?b", "/srv"] {
            assert!(source(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,60}") {
            let _ = (content_range(&text), check_reference(&text), source(&text));
        }

        #[test]
        fn a_good_reference_joined_to_a_folder_stays_in_it(text in "[a-z./_-]{1,30}") {
            if check_reference(&text).is_ok() {
                let joined = std::path::Path::new("/srv").join(&text);
                prop_assert!(joined.components().all(|part| !matches!(part, std::path::Component::ParentDir)));
                prop_assert!(joined.starts_with("/srv"));
            }
        }
    }
}
