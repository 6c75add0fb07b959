//! The documentation's links: every one between files of the tree leads to a file, and to a heading of it where it names one.
//!
//! **Invariant:** a page is in the book's `SUMMARY.md` once, so that a reader of the book finds all that a reader of the folder does.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::files;

/// The book.
const BOOK: &str = "docs";

/// What is wrong with the links of all Markdown files, and with the book's contents.
pub(crate) fn broken(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut pages = BTreeMap::new();
    for file in files(root, "md")? {
        let page = Page::of(&fs::read_to_string(root.join(&file))?);
        pages.insert(file, page);
    }
    let mut broken = Vec::new();
    for (file, page) in &pages {
        let folder = file.parent().unwrap_or(Path::new(""));
        for link in &page.links {
            let (path, anchor) =
                link.split_once('#').map_or((link.as_str(), None), |(path, anchor)| (path, Some(anchor)));
            let target = if path.is_empty() { file.clone() } else { normal(&folder.join(path)) };
            let name = file.display();
            if !root.join(&target).exists() {
                broken.push(format!("{name}: the link {link} leads nowhere"));
            } else if let (Some(anchor), Some(page)) = (anchor, pages.get(&target))
                && !page.anchors.contains(anchor)
            {
                broken.push(format!("{name}: the link {link} names no heading of {}", target.display()));
            }
        }
    }
    broken.extend(missing(&pages));
    Ok(broken)
}

/// What the book's contents lack.
fn missing(pages: &BTreeMap<PathBuf, Page>) -> Vec<String> {
    let summary = Path::new(BOOK).join("SUMMARY.md");
    let Some(contents) = pages.get(&summary) else { return vec![format!("{} is missing", summary.display())] };
    let listed: BTreeSet<_> = contents.links.iter().map(|link| normal(&Path::new(BOOK).join(link))).collect();
    let kept = pages.keys().filter(|page| page.starts_with(BOOK) && **page != summary);
    kept.filter(|page| !listed.contains(*page))
        .map(|page| format!("{}: is not in {}", page.display(), summary.display()))
        .collect()
}

/// What matters of a page.
struct Page {
    /// Where its links lead within the tree, as written.
    links: Vec<String>,
    /// What its headings can be linked as.
    anchors: BTreeSet<String>,
}

impl Page {
    fn of(text: &str) -> Self {
        let (mut links, mut anchors) = (Vec::new(), BTreeSet::new());
        let mut heading: Option<String> = None;
        for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) if is_local(&dest_url) => {
                    links.push(dest_url.into_string());
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    let anchor = anchor(&heading.take().unwrap_or_default());
                    let again = (1..).map(|count| format!("{anchor}-{count}"));
                    let free = std::iter::once(anchor.clone()).chain(again).find(|it| !anchors.contains(it));
                    anchors.extend(free);
                }
                Event::Text(text) | Event::Code(text) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&text);
                    }
                }
                _ => {}
            }
        }
        Self { links, anchors }
    }
}

/// Whether a link stays in the tree.
fn is_local(link: &str) -> bool {
    !link.contains("://") && !link.starts_with("mailto:")
}

/// What a heading is linked as: lower case, dashes for spaces, nothing else but letters, digits, dashes and underscores.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase().chars().collect::<Vec<_>>();
    let kept = kept.into_iter().filter(|it| it.is_alphanumeric() || matches!(it, ' ' | '-' | '_'));
    kept.map(|it| if it == ' ' { '-' } else { it }).collect()
}

/// A path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut all, part| {
        match part {
            Component::ParentDir => {
                all.pop();
            }
            Component::CurDir => {}
            other => all.push(other),
        }
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_knows_its_links_and_headings() {
        let page = Page::of(
            "# One `two`\n## A: b, c?\n## A: b, c?\n[x](a.md#y) [out](https://a.example/) ![i](i.png)\n```\n[no](b.md)\n```\n",
        );
        assert_eq!(page.links, ["a.md#y", "i.png"]);
        assert_eq!(page.anchors.into_iter().collect::<Vec<_>>(), ["a-b-c", "a-b-c-1", "one-two"]);
    }

    #[test]
    fn links_and_contents_that_lack_something_are_named() {
        let folder = std::env::temp_dir().join(format!("tidy-docs-{}", std::process::id()));
        fs::create_dir_all(folder.join("docs")).expect("a folder");
        fs::write(folder.join("docs/SUMMARY.md"), "[a](a.md)").expect("written");
        fs::write(folder.join("docs/a.md"), "# A\n[b](b.md) [c](#c) [d](d.md#a)\n[fine](#a) [fine](../docs/b.md#b)")
            .expect("written");
        fs::write(folder.join("docs/b.md"), "# B").expect("written");
        let shell = xshell::Shell::new().expect("a shell");
        shell.change_dir(&folder);
        xshell::cmd!(shell, "git init -q").run().expect("a repository");
        let broken = broken(&folder).expect("read");
        fs::remove_dir_all(&folder).expect("removed");
        assert_eq!(
            broken,
            [
                "docs/a.md: the link #c names no heading of docs/a.md",
                "docs/a.md: the link d.md#a leads nowhere",
                "docs/b.md: is not in docs/SUMMARY.md",
            ]
        );
    }
}
